import argparse
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep import arguments
from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.prepare import stages
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.options import Options
from deepsiam.data_prep.sources.registry import SOURCES


def parsed(source: str, *line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments.add_preparation(parser, source, SOURCES[source])
    return parser.parse_args(["in", "--out", "out", *line])


def options(source: str, *line: str) -> Options:
    return arguments.options_of(parsed(source, *line))


@pytest.mark.parametrize("source", SOURCES)
def test_the_defaults_are_those_of_the_code(source: str) -> None:
    assert options(source) == Options(source, SOURCES[source].choices())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--repair --scrub --paragraphs", {"repair": True, "scrub": True, "sentences": False}),
        ("--min-words 3 --max-words 9", {"min_words": 3, "max_words": 9}),
        ("--english --quality", {"language": "en", "quality": True}),
        ("--language LV --language-threshold 5", {"language": "lv", "language_threshold": 5.0}),
        ("--decontaminate a --decontaminate b --ngram 8", {"decontaminate": ("a", "b"), "ngram": 8}),
        ("--keep-duplicates --near-duplicates 0.8", {"keep_duplicates": True, "near_duplicates": 0.8}),
        ("--against a --against b --held-out 0.01", {"against": ("a", "b"), "held_out": 0.01}),
        ("--tokenizer t", {"tokenizer": "t"}),
        ("--tokenizer-kind bpe --vocab-size 9", {"tokenizer_kind": "bpe", "vocab_size": 9}),
        ("--chunk-tokens 5 --shards 7 --part 2/3", {"chunk_tokens": 5, "shards": 7, "part": Part(2, 3)}),
    ],
)
def test_each_choice_has_its_option(line: str, expected: dict[str, Any]) -> None:
    of_stages = {field.name for field in fields(stages.StageOptions)}
    named = {name: value for name, value in expected.items() if name in of_stages}
    others = {name: value for name, value in expected.items() if name not in of_stages}
    expected_options = Options("text", SOURCES["text"].choices(), stages=stages.StageOptions(**named), **others)
    assert options("text", *line.split()) == expected_options


def test_a_source_has_options_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("r/Two\none\n\n/r/two\n")
    assert options("jsonl", "--text", "body", "--id", "url").choices == {"text": "body", "id": "url", "pairs": False}
    assert options("jsonl", "--pairs").choices == {"text": "text", "id": None, "pairs": True}
    names = str(tmp_path / "names")
    line = ["--language", "DE", "--language-threshold", "5", "--subreddits", names, "--exclude-subreddits", names]
    assert options("reddit", *line, "--bots", names, "--min-score", "-3").choices == {
        "subreddits": ["one", "two"],
        "without": ["one", "two"],
        "bots": ["one", "r/two"],
        "min_score": -3,
        "pairs": False,
        "language": "de",
        "language_threshold": 5.0,
    }
    assert options("reddit", "--without", names, "--any-language") == options(
        "reddit", "--exclude-subreddits", names, "--language", "any"
    )


def test_arguments_that_do_not_change_the_output_are_not_among_its_options() -> None:
    assert options("text", "--workers", "7", "--max-bad", "0.5") == options("text", "--workers", "1")
    assert (parsed("text").workers >= 1, parsed("text").max_bad) == (True, arguments.MAX_BAD)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text --workers 0", "argument --workers: '0' is not a whole number above 0"),
        ("text --shards -1", "argument --shards: '-1' is not a whole number above 0"),
        ("text --shards 100000000", "argument --shards: 100,000,000 is more than 100,000"),
        ("text --shards 1.5", "argument --shards: '1.5' is not a whole number above 0"),
        ("text --held-out 1", "argument --held-out: '1' is not a number from 0 to below 1"),
        ("text --held-out nan", "argument --held-out: 'nan' is not a number from 0 to below 1"),
        ("text --max-bad x", "argument --max-bad: 'x' is not a number from 0 to below 1"),
        ("text --part 3/2", "argument --part: '3/2' is not a part such as 3/16"),
        ("text --tokenizer-kind x", "argument --tokenizer-kind: invalid choice: 'x'"),
        ("text --min-words 9 --max-words 3", "data_prep: --max-words 3: is below --min-words 9\n"),
        ("text --language xx", "--language xx: not known; one of any, "),
        ("reddit --min-score 1.5", "--min-score 1.5: not a whole number"),
        ("reddit --without /gone", "/gone: cannot read"),
    ],
)
def test_a_bad_value_is_named(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), "in", "--out", "out"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("source", SOURCES)
def test_the_example_in_the_help_is_a_command(source: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([source, "--help"])
    printed = capfd.readouterr().out
    example = printed.partition("example:\n  deepsiam prepare ")[2].splitlines()[0].split()
    assert example[0] == source
    parser = argparse.ArgumentParser()
    arguments.add_preparation(parser, source, SOURCES[source])
    assert arguments.options_of(parser.parse_args(example[1:])).source == source
    # pairs are not split into sentences or not
    if source in ("pairs", "text"):
        assert ("--paragraphs" in printed) == (source == "text")


def test_the_version_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capfd.readouterr().out == f"deepsiam {version('deepsiam')}\n"
