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


def check_damages(
    folder: Path,
    main: Main,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    *case: str,
    vouched: bool = True,
) -> None:
    """Run a command over a folder that is sound, then with one damage after another, drawn by the case's name."""
    rng, refused, tries = random.Random(" ".join(case)), 0, int(os.environ.get("DAMAGES", 12 if toy.FULL_TESTS else 6))
    assert check(main, arguments, capsys, "undamaged"), capsys.readouterr()
    for _ in range(tries):
        with one_damage(folder, rng, vouched=vouched) as what:
            refused += not check(main, arguments, capsys, what)
    assert refused > tries / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "approximate"), [("dense", []), ("multi", []), ("multi", ["--approximate=centroids"]), ("bm25", [])]
)
def test_a_damaged_index_is_one_line_or_is_searched(
    made: Path, kind: str, approximate: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made / f"{kind}-index"
    check_damages(folder, search.main, [str(folder), "abc", "--k=3", *approximate], capsys, kind, *approximate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "multi"])
@pytest.mark.parametrize("used", ["ranked", "exported"])
def test_a_damaged_checkpoint_is_one_line_or_is_used(
    made: Path, kind: str, used: str, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, where = made / kind, [f"--collection={toy_collection}", "--split=test", f"--out={tmp_path / 'results.json'}"]
    command: tuple[Main, list[str]] = (evaluate.main, [f"--system=run={run}", *where])
    if used == "exported":
        command = (export.main, [str(run), str(tmp_path / "export")])
    check_damages(checkpoint.folder(run, STEP), *command, capsys, kind, used)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["collection", "export"])
def test_a_damaged_collection_or_export_is_one_line_or_is_used(
    made: Path, what: str, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, collection, systems = tmp_path / what, toy_collection, ["--system=bm25"]
    if what == "export":
        export.main([str(made / "dense"), str(folder)])
        systems = [f"--system=m={folder}"]
    else:
        collection = Path(shutil.copytree(toy_collection, folder))
    command = [f"--collection={collection}", "--split=test", *systems, f"--out={tmp_path / 'results.json'}"]
    check_damages(folder, evaluate.main, command, capsys, what, vouched=False)


@pytest.mark.slow
def test_a_damaged_report_is_one_line_or_is_made(
    made: Path, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "report"
    log(folder / "one", {"mlm": [7, 5, 4]})
    (folder / "one" / "environment.json").write_text(json.dumps({"versions": {"torch": "2"}, "world_size": 2}))
    command = [f"--collection={toy_collection}", "--split=test", "--system=bm25", f"--write-runs={folder / 'rankings'}"]
    models = [f"--system={name}={made / name}" for name in ("dense", "multi")]
    evaluate.main([*command, *models, f"--out={folder / 'results.json'}", "--all-pairs"])
    check_damages(folder, report.main, [str(folder)], capsys, "report", vouched=False)
