"""However a manifest is edited, a command that reads it succeeds or fails with one line."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common import provenance
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from tests.data_prep import raw

OPTIONS = ["--held-out", 0.2]
VALUES: list[Any] = [None, -1, 0, 1, 5, 1e15, 10**14, 1 << 70, 0.5, True, "x", "", [], {}, [1], {"a": 1}, [[]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parts, with documents held out."""
    folder = tmp_path_factory.mktemp("parts")
    tok = raw.vocabulary(folder / "tokenizer.json")
    file = raw.write_jsonl(folder / "a.jsonl", raw.texts(60))
    return raw.parts(folder, 2, "jsonl", file, "--tokenizer", tok, *OPTIONS)


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in nested dictionaries and lists."""
    if before:
        yield before
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, (*before, key))


def edited(source: dict[str, Any], path: tuple[Any, ...], value: Any, remove: bool) -> dict[str, Any]:
    changed = copy.deepcopy(source)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    if remove:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


def test_what_a_preparation_writes_is_accepted(two: list[Path]) -> None:
    for folder in two:
        for split in output.SPLITS:
            source = Manifest.load(folder / split).source
            assert provenance.checked(source, "x") == source


@given(st.data())
# a manifest has 92 values, each of which may be edited
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5 * settings.default.max_examples)
def test_an_edited_manifest_is_refused_with_one_line_or_makes_no_harm(
    two: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    source = Manifest.load(two[1] / "shards").source
    path = data.draw(st.sampled_from(list(paths(source))))
    changed = edited(source, path, data.draw(st.sampled_from(VALUES)), data.draw(st.booleans()))
    shutil.rmtree(tmp_path / "part", ignore_errors=True)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    shutil.copytree(two[1], tmp_path / "part")
    file = tmp_path / "part" / "shards" / NAME
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "source": changed}))
    merge = ["merge", two[0], tmp_path / "part", "--out", tmp_path / "out", "--workers", 1]
    continued = ["jsonl", two[0].parent / "a.jsonl", *OPTIONS, "--part", "2/2", "--out", tmp_path / "part"]
    for command in (merge, [*continued, "--tokenizer", two[0].parent / "tokenizer.json"]):
        code, refusals = ended(command, capfd)
        assert (code, len(refusals)) in [(0, 0), (2, 1)]


def ended(command: list[Any], capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return the exit code of a command, and its lines on stderr that are not progress."""
    capfd.readouterr()
    try:
        code = main([str(word) for word in command])
    except SystemExit as exit:
        code = int(exit.code or 0)
    return code, [line for line in capfd.readouterr().err.splitlines() if line.startswith("data_prep: ")]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("ranges",), 0, "source.ranges: input should be greater than or equal to 1"),
        (("ranges",), "x", "source.ranges: input should be a valid integer"),
        (("stages",), {}, "source.stages: input should be a valid list"),
        (("spooled",), {"documents": 1e15}, "source.spooled.documents: input should be a valid integer"),
        (("spooled", "documents"), 10**14, "spooled.documents 100000000000000 of 30 that left the stage cut"),
        (("part",), {"number": 3, "of": 2}, "source.part: number 3 is above of 2"),
        (("options",), 5, "source.options: input should be a valid dictionary"),
        (("options", "shards"), 10**8, "source.options.shards: input should be less than or equal to 100000"),
        (("inputs",), 5, "source.inputs: input should be a valid dictionary"),
        (("inputs", "number"), 7, "source.inputs: number 7 of 1 files"),
        (("counts", "dropped"), {"bad": -1}, "source.counts.dropped.bad: input should be greater than or equal to 0"),
        (("unknown",), 1, "source.unknown: extra inputs are not permitted"),
    ],
)
def test_the_message_names_the_key(two: list[Path], path: tuple[str, ...], value: Any, message: str) -> None:
    source = Manifest.load(two[0] / "shards").source
    with pytest.raises(InputError, match=f"^here: .*{message}.*; prepare the data set again$"):
        provenance.checked(edited(source, path, value, remove=False), "here")
