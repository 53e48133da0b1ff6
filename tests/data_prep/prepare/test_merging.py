"""Merged parts of a data set are byte for byte what one machine makes; incomplete or foreign parts are refused."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.prepare import output
from tests.data_prep import raw
from tests.data_prep.forge import edit
from tests.data_prep.raw import Capture, contents, flip, near_copy

NEAR = ["--near-duplicates", 0.8]


def repeated(number: int) -> list[str]:
    """Return texts with exact copies, copies in other case, and near-duplicates."""
    texts = raw.texts(number, sentences=10)
    copies = [*texts[:5], *map(str.upper, texts[3:8])]
    return [*texts, *copies, *map(near_copy, texts[5:20]), *map(near_copy, texts[6:12]), "Short one."]


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize("wanted", [[], ["--keep-duplicates"], ["--held-out", 0.3, "--shards", 4]], ids=str)
def test_parts_without_near_duplicates_merge(tok: Path, tmp_path: Path, wanted: list[object]) -> None:
    files = [raw.write_jsonl(tmp_path / f"{index}.jsonl", repeated(25)[index::3]) for index in range(3)]
    raw.agree(tmp_path, "jsonl", *files, "--tokenizer", tok, "--chunk-tokens", 500, *NEAR, *wanted, numbers=[3])


@pytest.mark.usefixtures("datasketch")
def test_parts_against_another_data_set_merge_to_the_whole(tok: Path, tmp_path: Path) -> None:
    texts = repeated(40)
    other = raw.write_jsonl(tmp_path / "other.jsonl", [*texts[:9], near_copy(texts[10], 2)])
    raw.run("jsonl", other, "--tokenizer", tok, *NEAR, "--out", tmp_path / "other")
    file = raw.write_jsonl(tmp_path / "a.jsonl", texts)
    raw.agree(tmp_path, "jsonl", file, "--tokenizer", tok, "--against", tmp_path / "other", *NEAR, numbers=[2])


WORD = st.sampled_from(["river", "Stone", "tree", "HOUSE", "water"])
TEXT = st.lists(WORD, min_size=1, max_size=3).map(" ".join)


@given(st.lists(TEXT, min_size=2, max_size=40), st.integers(1, 2), st.booleans(), st.sampled_from([0, 0.4]))
def test_any_documents_merge(tok: Path, texts: list[str], number: int, keep: bool, held_out: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [raw.write_jsonl(Path(folder) / f"{one}.jsonl", texts[one::2]) for one in range(2)]
        paths.append(raw.write_jsonl(Path(folder) / "c.jsonl", ["Some training text."]))  # never held out
        wanted = ["--tokenizer", tok, "--shards", 3, *(["--keep-duplicates"] if keep else []), "--held-out", held_out]
        raw.agree(Path(folder), "jsonl", *paths, *wanted, numbers=[number])


def test_an_empty_part_merges_as_any_other(tok: Path, tmp_path: Path, capsys: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "c.jsonl", raw.texts(1, sentences=2))  # not held out
    wanted = ["--tokenizer", tok, "--held-out", 0.5]
    folders = raw.parts(tmp_path, 4, "jsonl", file, *wanted)
    assert "0 shards" in capsys.readouterr().out
    raw.run("jsonl", file, *wanted, "--part", "2/4", "--out", folders[1])
    assert "complete already" in capsys.readouterr().out
    for command in ("verify", "stats"):
        assert main([command, str(folders[1])]) == 0
    raw.run("merge", *folders, "--out", tmp_path / "merged")
    raw.run("jsonl", file, *wanted, "--out", tmp_path / "whole")
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")


@pytest.fixture(scope="module")
def made(tok: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts 1 and 2 of a data set, `whole`, which two processes merged of them, and other parts; read only."""
    folder = tmp_path_factory.mktemp("parts")
    file, inputs = (raw.write_jsonl(folder / f"{number}.jsonl", raw.texts(number)) for number in (80, 41))
    for name, source, part, *options in [
        ("1", file, "1/2"),
        ("2", file, "2/2"),
        ("third", file, "2/3"),
        ("options", file, "2/2", "--min-words", 3),
        ("vocabulary", file, "2/2", "--tokenizer", raw.vocabulary(folder / "tokenizer.json", 120)),
        ("inputs", inputs, "2/2"),
        ("options 1", file, "1/2", "--min-words", 3),
    ]:
        raw.run("jsonl", source, "--tokenizer", tok, *options, "--part", part, "--out", folder / name)
    raw.run("merge", folder / "1", folder / "2", "--out", folder / "whole", workers=2)
    shutil.copytree(folder / "2", folder / "no part")
    edit(folder / "no part" / "shards", lambda record: record["source"].pop("part"))
    (folder / "empty").mkdir()
    return folder


def test_two_processes_merge_to_what_one_makes(made: Path, tok: Path, tmp_path: Path) -> None:
    raw.run("jsonl", made / "80.jsonl", "--tokenizer", tok, "--out", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(made / "whole")


OTHER = "FOLDER/{0}: was made with other {1} than FOLDER/1; prepare one of them again"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("1", "part 2/2 is missing"),
        ("2", "part 1/2 is missing"),
        ("1,1,2", "part 1/2 is named twice"),
        ("1,third", "FOLDER/third: is part 2/3 but FOLDER/1 is part 1/2; name parts of one division"),
        ("1,empty", "FOLDER/empty/shards/manifest.json: no such file"),
        ("1,options", OTHER.format("options", "options")),
        ("1,vocabulary", OTHER.format("vocabulary", "options")),
        ("1,inputs", OTHER.format("inputs", "inputs")),
        ("1,no part", "FOLDER/no part/shards/manifest.json: its shards are not those of a prepared data set"),
    ],
)
def test_missing_and_foreign_parts_are_refused(
    made: Path, tmp_path: Path, parts: str, said: str, capfd: Capture
) -> None:
    message = raw.refusal(capfd, "merge", *map(made.joinpath, parts.split(",")), "--out", tmp_path / "out")
    assert said.replace("FOLDER", str(made)) in message
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("datasketch")
def test_a_merge_refuses_a_damaged_part_until_repaired(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(80))
    two = raw.parts(tmp_path, 2, "jsonl", file, "--tokenizer", tok, *NEAR)
    raw.run("merge", *two, "--out", tmp_path / "whole")
    for damaged in (two[1] / "shards" / "shard-000001.tar", two[1] / output.BANDS):
        sound = damaged.read_bytes()
        flip(damaged)
        message = raw.refusal(capfd, "merge", *two, "--out", tmp_path / "out")
        assert message.startswith(f"{damaged}: ")
        assert not (tmp_path / "out" / "shards" / "manifest.json").exists()
        damaged.write_bytes(sound)
    raw.run("merge", *two, "--out", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_finished_merge_is_left_alone(made: Path, tmp_path: Path, capfd: Capture) -> None:
    two, before = [made / "1", made / "2"], contents(made / "whole")
    raw.run("merge", *two, "--out", made / "whole")
    assert "complete already, nothing to do" in capfd.readouterr().out
    for parts, out in [([made / "options 1", made / "options"], made / "whole"), (two, two[0])]:
        message = raw.refusal(capfd, "merge", *parts, "--out", out)
        assert message == f"{out}: was made from other input or with other options; choose another --out or remove it"
    assert contents(made / "whole") == before
