"""The wheel, installed alone: it has one name, all that it needs, and a user's own modules do not get in its way.

WHEEL_PYTHON is the interpreter of an environment with its dependencies, of any version: without it, this one.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests import killed, toy
from tests.own_code import EXAMPLES
from tests.test_cluster_files import copied
from tests.test_readme import brief, python_example

# of files, and their kind
FOLDERS = {"data_prep": "py", "models": "py", "trainer": "py", "recipes": "yaml", "ds_configs": "json", "docs": "md"}
USERS_OWN = ("models.py", "trainer.py", "data_prep.py", "recipes.py", "models/config.py", "trainer/__init__.py")
INTERPRETER = os.environ.get("WHEEL_PYTHON", sys.executable)
elsewhere = pytest.mark.skipif(
    "WHEEL_PYTHON" not in os.environ, reason="of the checkout, tests/test_readme.py and tests/examples show it: faster"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what docs/Dockerfile copies: setuptools leaves files beside what it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in copied():
        if (toy.ROOT / name).is_dir():
            shutil.copytree(toy.ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(toy.ROOT / name, source)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; its dependencies are those of INTERPRETER."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([INTERPRETER, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(packages(python))
    (packages(python) / "dependencies.pth").write_text(str(packages(INTERPRETER)))  # its own .pth files are not read
    return python


def packages(python: str | Path) -> Path:
    """Return the folder where an interpreter's packages are."""
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip())


def test_it_has_one_name_and_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    files = {path for folder, kind in FOLDERS.items() for path in (toy.ROOT / folder).rglob(f"*.{kind}")}
    files.add(toy.ROOT / "recipes" / "from_documents" / "Makefile")
    own = {f"deepsiam/{path.name}" for path in (toy.ROOT / "deepsiam").iterdir() if path.is_file()}
    assert names == own | {f"deepsiam/{path.relative_to(toy.ROOT)}" for path in files}


# from the wheel's own recipe, which is named, and DeepSpeed file; in one interpreter, which imports torch once
USES = """
import json, shlex, sys
import deepsiam
from deepsiam.__main__ import main

collection, trunk, *lines = sys.argv[1:]
deepsiam.finetune(
    "siamese_small", run="run", steps=2, batch={"size": 8, "micro": 4}, deepspeed="cpu", init_from=None,
    **{"data.collection": collection, "trunk": json.loads(trunk)},
)
for line in lines:
    print(">", line)
    try:
        main(shlex.split(line))
    except SystemExit as end:
        assert not end.code, line
"""


@pytest.mark.slow
def test_it_trains_ranks_and_exports_beside_a_user_s_own_modules(
    python: Path, toy_collection: Path, tmp_path: Path
) -> None:
    for name in USERS_OWN:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a module of the user was imported')\n")
    lines = [
        f"evaluate --collection={toy_collection} --split=test --system=run --out=results.json",
        "export run export",
        "keys faults.on_nan",
        "demo --dry-run",
        "mine --help",
    ]
    printed = succeed(python, tmp_path, "-c", USES, toy_collection, json.dumps(toy.TRUNK), *lines)
    _, ranked, _, key, demo, help_of_mine = printed.split("\n> ")
    assert "MRR@10" in ranked
    assert (tmp_path / "export" / "modules.json").is_file()
    assert "return to the last checkpoint" in key  # a page of the wheel says it
    assert demo.count("deepsiam pretrain recipes/demo_") == 2
    page = Path(help_of_mine.rpartition("more: ")[2].strip())
    assert page.is_file()
    assert not page.is_relative_to(toy.ROOT)


def succeed(python: Path, folder: Path, *words: object) -> str:
    """Run an interpreter in a folder; return what it prints."""
    command = [str(python), *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=toy.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@elsewhere
@pytest.mark.slow  # four minutes
def test_the_demo_s_trainings_and_the_readme_s_example(python: Path, tmp_path: Path) -> None:
    """The demo as `deepsiam demo` prints it, with few steps; then its encoder, from Python."""
    run = partial(succeed, python, tmp_path, "-m", "deepsiam")
    launcher = f" -- --master_port {toy.free_port()}"
    for line in run("demo", "--dry-run").splitlines():
        command, _, _ = line.removeprefix("deepsiam ").partition(" -- ")
        if "--resume" in command:
            command = brief(command) + launcher
        if not command.startswith(("evaluate", "report")):  # they take minutes for 1,000 queries
            run(*shlex.split(command))
    assert succeed(python, tmp_path, "-c", python_example()).split()[0] in ("0", "1")


@elsewhere
@pytest.mark.slow  # two minutes
def test_the_examples_train_and_resume_beside_it(
    python: Path, shards: Path, toy_collection: Path, tmp_path: Path
) -> None:
    """On two ranks; killed, resumed, ranked and exported."""
    source = shutil.copytree(EXAMPLES, tmp_path / "examples")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(packages(python))]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)  # python has no pip
    run = partial(succeed, python, tmp_path, "-m", "deepsiam")
    method, optimizer = {"name": "bag_of_words", "max_tokens": 32}, {"name": "radam", "lr": 1e-3}
    keys = {"checkpoint": {"every": 2}, "method": method, "optimizer": optimizer, "steps": 60}
    bag = toy.seed_recipe(tmp_path / "bag.yaml", shards, **keys)
    launcher = ["--", "--master_port", toy.free_port()]
    printed = tmp_path / "printed"
    with printed.open("w") as file:
        words = [str(python), "-m", "deepsiam", "pretrain", "--gpus", "2", str(bag), *map(str, launcher)]
        process = subprocess.Popen(
            words, cwd=tmp_path, env=toy.environment(), stdout=file, stderr=file, start_new_session=True
        )
        killed.read_to(process, printed, "step 5/")
        killed.kill(process)
    assert "resuming from" in run("pretrain", "--gpus", 2, bag, "--resume", *launcher)
    start = str(bag.with_suffix(""))
    two_way = toy.finetune_recipe(
        tmp_path / "two_way.yaml", toy_collection, method={"name": "two_way"}, init_from=start
    )
    run("finetune", "--gpus", 2, two_way, *launcher)
    ranked = [f"--collection={toy_collection}", "--split=test", "--system=two_way", "--out=results.json"]
    assert "Success@100" in run("evaluate", *ranked, "--metrics", "success@100")
    run("export", "two_way", "export")
    assert (tmp_path / "export" / "modules.json").is_file()
