"""`deepsiam VERB`: a line for each command, answers without torch, completion, and a launch with its exit code."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from deepsiam.__main__ import VERBS, main
from deepsiam.trainer.interface import launch
from tests import toy

HEAVY = ("torch", "transformers", "deepspeed", "shtab", "fsspec", "rich")
TYPE = """
import contextlib, importlib, sys
heavy = sys.argv[1].split()
for line in sys.argv[2:]:
    module, *words = line.split()
    with contextlib.suppress(SystemExit):
        importlib.import_module(f"deepsiam.{module}").main(words)
    print([line, *(name for name in heavy if name in sys.modules)], flush=True, file=sys.stderr)
"""


def test_every_command_is_a_verb() -> None:
    commands = {file.stem for file in (toy.ROOT / "trainer").glob("[a-z]*.py")}
    assert set(VERBS) == commands | {"prepare"}


def test_help_and_errors_need_nothing_heavy() -> None:
    commands = [f"__main__ {verb}" for verb in VERBS] + [f"trainer.{verb}" for verb in launch.TRAININGS]  # each rank's
    words = ("--help", "--version", "--helt")
    lines = ["__main__ --help", "__main__ evaluat", *(f"{command} {word}" for command in commands for word in words)]
    typed = [sys.executable, "-c", TYPE, " ".join(HEAVY), *lines]
    done = subprocess.run(typed, cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("[")] == [str([line]) for line in lines]
    assert all(f"usage: deepsiam {verb}" in done.stdout for verb in VERBS)
    assert len(re.findall(r"^deepsiam \S+$", done.stdout, re.MULTILINE)) == len(commands)  # versions
    assert done.stderr.count("; see deepsiam ") == 1 + len(commands)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("evaluat", "did you mean evaluate?; see deepsiam --help"),
        ("", "deepsiam: the following arguments are required: VERB; see deepsiam --help"),
        ("pretrain r.yaml --gpu_s 2", "deepsiam pretrain: unknown option --gpu_s; did you mean --gpus?"),
        ("pretrain r.yaml --gpus 0", "argument --gpus: '0' is not a whole number above 0"),
        ("finetune r.yaml --hostfile no/file", "argument --hostfile: 'no/file' is no file"),
        ("finetune -- --include a", "the following arguments are required: recipe"),
        ("plan r.yaml --gpuz 8", "deepsiam plan: unknown option --gpuz; did you mean --gpu?"),
    ],
)
def test_a_wrong_word_is_one_line(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        main(words.split())
    printed = capsys.readouterr()
    assert line in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    """The completion of each shell."""
    pytest.importorskip("shtab")
    made = {}
    for shell in ("bash", "zsh"):
        with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit, match="^0$"):
            main(["--completion", shell])
        made[shell] = printed.getvalue()
    return made


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("deepsiam ev", "evaluate"),
        ("deepsiam pretrain --gp", "--gpus"),
        ("deepsiam finetune r.yaml --res", "--resume"),
        ("deepsiam prepare wikipedia-l", "wikipedia-links"),
        ("deepsiam index --dtype int", "int8"),
        ("deepsiam export rec", "recipes"),  # a file
    ],
)
def test_bash_completes(scripts: dict[str, str], typed: str, completed: str) -> None:
    words = typed.split()
    ask = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_deepsiam; echo ${{COMPREPLY[@]}}"
    line = ["bash", "-s"]
    done = subprocess.run(line, cwd=toy.ROOT, input=f"{scripts['bash']}\n{ask}", capture_output=True, text=True)
    assert done.stdout.split() == [completed]


def test_zsh_has_a_completion(scripts: dict[str, str]) -> None:
    assert scripts["zsh"].startswith("#compdef deepsiam\n")
    assert all(f"\n    {verb}:'" in scripts["zsh"] for verb in VERBS)


def test_a_training_is_launched_and_its_exit_code_passed_on(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=1, checkpoint={"every": 1})
    done, refused = (
        toy.run("deepsiam", "pretrain", "--gpus", 2, recipe, "--", "--master_port", toy.free_port()) for _ in range(2)
    )
    assert done.returncode == 0, done.stderr
    assert "2 x cpu" in done.stdout
    assert refused.returncode == 2
    assert refused.stderr.count("contains a run (step-00000001)") == 1
