"""What `inspect` prints: the first documents, or those with an id or a pattern."""

import re
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import find
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer


@pytest.fixture
def written(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path, small, 12, 2) as writer:
        for number in range(8):
            writer.add(f"zoo:{number}", small.encode(["The fox jumps.", "The dog sleeps."][: 1 + number % 2]))
        writer.add("zoo:7#2", small.encode(["The fox sleeps."]))
        writer.add("zoo:77", small.encode(["The fox."]))
        writer.add("zoo:empty", [])
    return tmp_path


def test_documents_are_printed_in_words_with_their_ids_and_lengths(written: Path) -> None:
    first, second = find.find(written, find.any_document, 2)
    assert first.startswith("shard-000000.tar: zoo:0 (1 segments, ")
    assert second.splitlines()[0].startswith("shard-000000.tar: zoo:1 (2 segments, ")
    assert second.splitlines()[1:] == ["  the fox jumps.", "  the dog sleeps."]


def test_a_document_is_found_by_its_id_with_the_parts_of_it(written: Path) -> None:
    found = list(find.find(written, find.by_id("zoo:7"), 5))
    assert [text.splitlines()[0].split(" (")[0].split(": ")[1] for text in found] == ["zoo:7", "zoo:7#2"]
    assert found[0].splitlines()[1:] == ["  the fox jumps.", "  the dog sleeps."]


def test_the_first_documents_with_a_pattern_are_found_in_all_shards(written: Path) -> None:
    sleeps = find.by_pattern(re.compile("D.g SLEEPS", re.IGNORECASE))
    ids = [text.split(": ", 1)[1].split(" (")[0] for text in find.find(written, sleeps, 3)]
    assert ids == ["zoo:1", "zoo:3", "zoo:5"]
    assert len(list(find.find(written, sleeps, 100))) == 4


def test_nothing_found_is_said(written: Path) -> None:
    with pytest.raises(InputError, match="no document of its 11 matches"):
        list(find.find(written, find.by_id("zoo"), 5))


def test_the_command_prints_them(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(written), "--grep", "dog", "--documents", "1"]) == 0
    assert capfd.readouterr().out.startswith("shard-000000.tar: zoo:1 (2 segments, ")
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(written), "--grep", "("])
    assert ended.value.code == 2
    assert "'(' is not a regular expression" in capfd.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(written), "--grep", "dog", "--documents", "0"])
    assert ended.value.code == 2
    assert "--documents: '0' is not a whole number above 0" in capfd.readouterr().err
