"""Every command over a run or an index with one damaged file that its manifest vouches for: a result, or one line."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer import evaluate, export, index, report, search
from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.commands.test_report import log
from tests.trainer.damage import damaged, restored
from tests.trainer.runs import STEP, write_run

Main = Callable[[list[str]], None]


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and an index of each kind; their YAML is written as JSON, which is YAML too."""
    folder = tmp_path_factory.mktemp("damaged")
    tokenizer = toy_collection / "tokenizer.json"
    lengths = {"max_query_tokens": 8, "max_document_tokens": 16}
    write_run(folder / "dense", tokenizer, name="siamese", **lengths)
    write_run(folder / "multi", tokenizer, name="colbert", dimension=8, **lengths)
    for name in ("dense", "multi"):
        recipe = checkpoint.folder(folder / name, STEP) / checkpoint.RECIPE
        recipe.write_text(json.dumps(yaml.safe_load(recipe.read_text())))
        vouch(recipe.parent)
        approximate = ["--approximate=centroids"] * (name == "multi")
        where = [f"--collection={toy_collection}", f"--out={folder / name}-index"]
        index.main([str(folder / name), *where, *approximate])
    index.main(["bm25", f"--collection={toy_collection}", f"--out={folder / 'bm25-index'}"])
    return folder


def vouch(folder: Path) -> None:
    """Let the manifest of a checkpoint or an index vouch for all files there, if it is sound enough."""
    manifest = folder / checkpoint.MANIFEST
    values = json.loads(manifest.read_text())
    if "sha256" in values:
        values["sha256"] = {name: sha256_of(folder / name) for name in values["sha256"]}
    else:
        files = {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in folder.iterdir() if f != manifest}
        values["files"] = files
    manifest.write_text(json.dumps(values))


@contextmanager
def one_damage(folder: Path, rng: random.Random, *, vouched: bool = True) -> Iterator[str]:
    """Damage one file of a folder, let its manifest vouch for it, and undo that afterwards; yield what was done."""
    before = restored(folder)
    file = rng.choice(list(before))
    content = damaged(before[file], file.name, rng)
    try:
        file.write_bytes(content)
        if vouched and file.name != checkpoint.MANIFEST:
            vouch(folder)
        yield f"{file.relative_to(folder)}: {content[:400]!r}"
    finally:
        for path, old in before.items():
            path.write_bytes(old)


def check(main: Main, arguments: list[str], capsys: pytest.CaptureFixture[str], what: str) -> bool:
    """Return whether a command has succeeded; it must, or exit with code 2 and one line that is not too long."""
    capsys.readouterr()
    code: object = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        raise AssertionError(f"{main.__module__} {arguments}: {what}: {error!r}") from error
    printed = capsys.readouterr().err
    if code:
        print(printed)
        assert code == 2, what
        assert printed.count("\n") == 1, f"{what}: {printed}"
        assert len(printed) < 2000, what
    return not code


INDEXES = ["search dense", "search multi", "search multi --approximate=centroids", "search bm25"]
CHECKPOINTS = ["evaluate dense", "evaluate multi", "export dense", "export multi"]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*INDEXES, *CHECKPOINTS, "evaluate collection", "evaluate exported", "report"])
def test_a_damaged_file_is_one_line_or_is_used(
    made: Path, case: str, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over a folder that is sound, then with one damage after another, drawn by the case's name."""
    verb, *words = case.split()
    folder, collection, out = tmp_path / "folder", toy_collection, f"--out={tmp_path / 'results.json'}"
    main: Main = {"search": search.main, "evaluate": evaluate.main, "export": export.main, "report": report.main}[verb]
    if verb == "search":
        folder = made / f"{words[0]}-index"
        command = [str(folder), "abc", "--k=3", *words[1:]]
    elif verb == "report":
        write_report(folder, made, toy_collection)
        command = [str(folder)]
    elif verb == "export":
        folder = checkpoint.folder(made / words[0], STEP)
        command = [str(made / words[0]), str(tmp_path / "export")]
    else:
        model = made / words[0]
        if words == ["collection"]:
            collection, model = Path(shutil.copytree(toy_collection, folder)), made / "dense"
        elif words == ["exported"]:
            export.main([str(made / "dense"), str(folder)])
            model = folder
        else:
            folder = checkpoint.folder(model, STEP)
        command = [f"--collection={collection}", "--split=test", "--system=bm25", f"--system=m={model}", out]
    rng, refused, tries = random.Random(case), 0, int(os.environ.get("DAMAGES", 12 if toy.FULL_TESTS else 6))
    assert check(main, command, capsys, "undamaged"), capsys.readouterr()
    for _ in range(tries):
        with one_damage(folder, rng, vouched=folder.is_relative_to(made)) as what:
            refused += not check(main, command, capsys, what)
    assert refused > tries / 4


def write_report(folder: Path, made: Path, collection: Path) -> None:
    """Write what a report shows: a run's log, results, and rankings."""
    log(folder / "one", {"mlm": [7, 5, 4]})
    (folder / "one" / "environment.json").write_text(json.dumps({"versions": {"torch": "2"}, "world_size": 2}))
    command = [f"--collection={collection}", "--split=test", "--system=bm25", f"--write-runs={folder / 'rankings'}"]
    models = [f"--system={name}={made / name}" for name in ("dense", "multi")]
    evaluate.main([*command, *models, f"--out={folder / 'results.json'}", "--all-pairs"])
