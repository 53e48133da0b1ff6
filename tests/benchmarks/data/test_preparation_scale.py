from pathlib import Path

import pytest

from benchmarks.data import preparation_scale
from benchmarks.data.preparation import RawText


@pytest.mark.slow
def test_parts_are_merged_and_the_memory_of_all_processes_is_summed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    material = RawText(tmp_path, None, 1)
    merged = preparation_scale.merge(material, sizes=(0.02, 0.04), parts=2)
    assert merged["seconds"].keys() == {"0.02", "0.04"}
    assert min(merged["seconds"].values()) > 0
    peaks = preparation_scale.memory(material, numbers=(1, 2), megabytes=0.2)
    assert peaks["2"] > 1.2 * peaks["1"] > 50  # workers are separate processes
    assert "merge of 2 parts: 0.02 MB of text" in capsys.readouterr().out
    parts = preparation_scale.parts(material, megabytes=0.2, number=2)
    assert parts.keys() == {"1/2", "2/2", "merge"}
    assert min(one["seconds"] for one in parts.values()) > 0
    assert "parts: 0.2 MB, a part takes" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "pages-articles.xml", "small.xml"}
