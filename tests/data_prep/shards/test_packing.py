import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.shards import chunk, packing
from deepsiam.data_prep.shards.chunk import decode
from deepsiam.data_prep.shards.document import TokenDocument, from_json
from tests.data_prep import forge
from tests.data_prep.shards import drawn
from tests.data_prep.shards.drawn import IDS

HERE = Path("here")


@given(st.lists(drawn.documents(), max_size=8), st.integers(1, 12))
@example([TokenDocument([np.ones(2, IDS)], id, key=0) for id in "ab"], 2)  # each is a whole chunk
def test_documents_survive_packing_in_chunks_of_the_wanted_size(
    documents: list[TokenDocument], chunk_tokens: int
) -> None:
    read = []
    for packed in packing.chunks(documents, IDS, chunk_tokens, HERE):
        inside = from_json(packed.json, decode(packed.npz, 100, IDS))
        assert (packed.documents, packed.segments) == (len(inside), sum(len(document.segments) for document in inside))
        assert packed.tokens == sum(len(segment) for document in inside for segment in document.segments)
        assert sum(len(segment) for document in inside[:-1] for segment in document.segments) < chunk_tokens
        read += inside
    assert list(map(drawn.plain, read)) == list(map(drawn.plain, documents))


@given(st.lists(drawn.documents(), min_size=1, max_size=6))
def test_a_shard_is_the_same_bytes_each_time(documents: list[TokenDocument]) -> None:
    chunks = list(packing.chunks(documents, IDS, 5, HERE))
    with tempfile.TemporaryDirectory() as folder:
        first, second = (packing.write_shard(Path(folder) / name, 7, chunks) for name in "ab")
        assert first.sha256 == second.sha256
        assert (first.chunks, first.documents) == (len(chunks), len(documents))
        assert (Path(folder) / "a").read_bytes() == (Path(folder) / "b").read_bytes()
        assert b"000007000000.npz" in (Path(folder) / "a").read_bytes()


def test_a_shard_has_the_bytes_that_tarfile_wrote_before_webdataset_did(tmp_path: Path) -> None:
    chunks = [packing.Chunk(f"npz {number}".encode() * 200, b"{}", 1, 1, 1) for number in range(3)]
    entry = packing.write_shard(tmp_path / "new", 7, chunks)
    members = [(f"000007{n:06d}.{end}", getattr(c, end)) for n, c in enumerate(chunks) for end in ("npz", "json")]
    forge.pack(tmp_path / "old", members)
    assert (tmp_path / "new").read_bytes() == (tmp_path / "old").read_bytes()
    assert entry.sha256 == sha256_of(tmp_path / "old")


def test_no_documents_give_no_chunks() -> None:
    assert list(packing.chunks([], IDS, 5, HERE)) == []


def test_a_chunk_too_large_to_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "LARGEST", 1000)
    with pytest.raises(InputError, match="here: the chunk with document a+ has over 1,000 bytes: make chunks of fewer"):
        list(packing.chunks([TokenDocument([], "a" * 1000)], IDS, 5, HERE))
