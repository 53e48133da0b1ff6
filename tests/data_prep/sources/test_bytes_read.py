import gzip
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.format import text_lines
from deepsiam.data_prep.common import progress
from deepsiam.data_prep.sources.bytes_read import tally, track_files
from deepsiam.data_prep.sources.parquet import parquet_rows


def test_the_files_bytes_tell_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PERIOD", 0)
    files = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    files[0].write_bytes(b"%9999d\n" % 1 * 300)  # 3 MB: several reads
    files[1].write_bytes(gzip.compress(b"x\n" * 100))
    list(track_files((line for file in files for line in text_lines(file)), "corpus", "texts", files))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("corpus: 1.0/3.0 MB, ")
    assert first.endswith(" left; 1 texts")
    assert last.startswith("corpus: 3.0/3.0 MB, ")
    assert last.endswith(" 0 s left; 400 texts")


def test_rows_of_parquet_count_their_share_of_the_file(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": [f"text {i}" for i in range(1000)]}), path, row_group_size=600)
    before = tally.bytes
    read = [tally.bytes - before for _ in parquet_rows(path, ["text"])]
    assert read == sorted(read)
    assert read[0] < 100
    assert 0.5 * path.stat().st_size < read[-1] < path.stat().st_size
