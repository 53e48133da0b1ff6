from pathlib import Path

import pytest

from data_prep.common.errors import InputError
from data_prep.shards.describe import describe
from data_prep.shards.writer import ShardWriter
from data_prep.tokenizers.tokenizer import Tokenizer


@pytest.fixture
def written(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path, small, 12, 2) as writer:
        for number in range(8):
            writer.add(f"zoo:{number}", small.encode(["The fox jumps.", "The dog sleeps."][: 1 + number % 2]))
        writer.add("zoo:empty", [])
    return tmp_path


def test_documents_are_printed_in_words_with_their_ids_and_lengths(written: Path) -> None:
    lines = describe(written, shard=0, chunk=0, documents=2).splitlines()
    assert lines[0].startswith(f"{written}: ")
    assert "9 documents, 12 segments" in lines[0]
    assert "shard-000000.tar, chunk 0 of 2" in lines
    place = next(number for number, line in enumerate(lines) if line.startswith("zoo:1 (2 segments, "))
    assert lines[place + 1 : place + 3] == ["  the fox jumps.", "  the dog sleeps."]
    assert not any(line.startswith("zoo:2") for line in lines)


def test_the_histogram_counts_every_document_of_the_shard(written: Path) -> None:
    text = describe(written, shard=1, chunk=0, documents=0)
    bars = text.split("tokens per document in shard-000001.tar\n")[1].splitlines()
    assert sum(int(bar.split()[3]) for bar in bars) == 4
    assert bars[0].split()[:3] == ["4", "to", "7"]


def test_a_missing_shard_or_chunk_is_named(written: Path) -> None:
    with pytest.raises(InputError, match="no shard 3; name one of 0 to 2"):
        describe(written, 3, 0, 1)
    with pytest.raises(InputError, match="shard-000000.tar: no chunk -1; name one of 0 to 1"):
        describe(written, 0, -1, 1)
