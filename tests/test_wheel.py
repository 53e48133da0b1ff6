"""The wheel, installed alone: it has one name, all that it needs, and a user's own modules do not get in its way."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests import toy
from tests.test_cluster_files import copied

# of files, and their kind
FOLDERS = {"data_prep": "py", "models": "py", "trainer": "py", "recipes": "yaml", "ds_configs": "json", "docs": "md"}
USERS_OWN = ("models.py", "trainer.py", "data_prep.py", "recipes.py", "models/config.py", "trainer/__init__.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what docs/Dockerfile copies: setuptools leaves files beside what it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in copied():
        if (toy.ROOT / name).is_dir():
            shutil.copytree(toy.ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(toy.ROOT / name, source)
    build = ["pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source]
    subprocess.run([sys.executable, "-m", *map(str, build)], check=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; its dependencies are those of this environment."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    install = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", packages, wheel]
    subprocess.run([sys.executable, "-m", *map(str, install)], check=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    return environment / "bin" / "python"


def test_it_has_one_name_and_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    files = {path for folder, kind in FOLDERS.items() for path in (toy.ROOT / folder).rglob(f"*.{kind}")}
    own = {f"deepsiam/{path.name}" for path in (toy.ROOT / "deepsiam").iterdir() if path.is_file()}
    assert names == own | {f"deepsiam/{path.relative_to(toy.ROOT)}" for path in files}


@pytest.mark.slow
def test_it_trains_ranks_and_exports_beside_a_user_s_own_modules(
    python: Path, toy_collection: Path, tmp_path: Path
) -> None:
    """From its own recipe, which is named, and DeepSpeed file."""
    for name in USERS_OWN:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a module of the user was imported')\n")

    def run(*command: object) -> str:
        words = [str(python), "-m", *map(str, command)]
        done = subprocess.run(words, cwd=tmp_path, env=toy.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    launch = ["deepspeed.launcher.runner", "--num_accelerators=1", f"--master_port={toy.free_port()}", "--module"]
    keys = [
        "run=run",
        f"data.collection={toy_collection}",
        "init_from=null",
        f"trunk={json.dumps(toy.TRUNK)}",
        "steps=2",
    ]
    run(*launch, "deepsiam.trainer.finetune", "siamese_small", *keys, "batch.size=8", "batch.micro=4", "deepspeed=cpu")
    ranked = [f"--collection={toy_collection}", "--split=test", "--system=run", "--out=results.json"]
    assert "MRR@10" in run("deepsiam.trainer.evaluate", *ranked)
    run("deepsiam", "export", "run", "export")
    assert (tmp_path / "export" / "modules.json").is_file()
    assert "return to the last checkpoint" in run("deepsiam", "keys", "faults.on_nan")  # a page of the wheel says it
    page = Path(run("deepsiam", "mine", "--help").rpartition("more: ")[2].strip())
    assert page.is_file()
    assert not page.is_relative_to(toy.ROOT)
    assert run("deepsiam", "demo", "--dry-run").count("deepsiam pretrain recipes/demo_") == 2
