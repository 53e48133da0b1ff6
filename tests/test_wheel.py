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

FOLDERS = {"data_prep": "py", "models": "py", "trainer": "py", "recipes": "yaml", "ds_configs": "json"}  # of files
USERS_OWN = ("models.py", "trainer.py", "data_prep.py", "recipes.py", "models/config.py", "trainer/__init__.py")

# commands in one process, which imports torch once; as with -m, the user's folder comes first in sys.path
ONE_AFTER_ANOTHER = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools leaves files beside what it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in ("deepsiam", *FOLDERS):
        shutil.copytree(toy.ROOT / folder, source / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(toy.ROOT / file, source)
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
    assert names == {"deepsiam/__init__.py"} | {f"deepsiam/{path.relative_to(toy.ROOT)}" for path in files}


@pytest.mark.slow
def test_it_trains_ranks_and_exports_beside_a_user_s_own_modules(
    python: Path, toy_collection: Path, tmp_path: Path
) -> None:
    """From its own recipe, which is named, and DeepSpeed file."""
    for name in USERS_OWN:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a module of the user was imported')\n")

    launched = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    variables = {**toy.environment(), **launched, "MASTER_PORT": str(toy.free_port())}

    def run(*words: str) -> str:
        done = subprocess.run([str(python), *words], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    keys = ["run=run", f"data.collection={toy_collection}", "init_from=null", f"trunk={json.dumps(toy.TRUNK)}"]
    sizes = ["steps=2", "batch.size=8", "batch.micro=4", "deepspeed=cpu"]
    run("-m", "deepsiam.trainer.finetune", "siamese_small", *keys, *sizes)
    ranked = [f"--collection={toy_collection}", "--split=test", "--system=run", "--out=results.json"]
    commands = ["deepsiam.trainer.evaluate", *ranked], ["deepsiam.trainer.export", "run", "export"]
    assert "MRR@10" in run("-c", ONE_AFTER_ANOTHER, json.dumps(commands))
    assert (tmp_path / "export" / "modules.json").is_file()
