"""`deepsiam demo`: one list of steps, each a command line that its command takes; it ends with the first that fails."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.__main__ import VERBS
from deepsiam.data_prep.__main__ import parser as prepare
from deepsiam.trainer import demo, evaluate, export, report
from deepsiam.trainer.interface import launch
from deepsiam.trainer.training.recipe.schema import kind_of
from deepsiam.trainer.training.recipe.yaml_file import build, read
from tests import toy

PARSERS = {"prepare": prepare, "evaluate": evaluate.parser, "export": export.parser, "report": report.parser}


def test_the_commands_are_right_in_any_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its recipes are the package's
    assert demo.main(["--dry-run", "--gpus", "2"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert {line[0] for line in lines} == {"deepsiam"}
    commands = [line[1:] for line in lines]
    verbs = "prepare pretrain pretrain finetune finetune finetune evaluate export report"
    assert [verb for verb, *_ in commands] == verbs.split()
    for verb, *words in commands:
        assert verb in VERBS
        if verb in launch.TRAININGS:
            given = launch.parser(verb).parse_intermixed_args(words)
            assert (given.gpus, given.resume) == (2, True)
            values = read(given.recipe, given.overrides)
            recipe = build(kind_of(values), values, "demo")
            assert recipe.run.is_relative_to("runs/demo")
            assert recipe.batch.micro_batches % 2 == 0
        else:
            PARSERS[verb]().parse_args(words)


def test_it_passes_options_on_and_ends_with_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[list[str]]()

    def call(words: list[str]) -> int:
        ran.append(words[3:])
        return 3 * (len(ran) == 2)

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(demo, "default_ranks", lambda: 1)
    assert demo.main(["--", "--master_port", "7"]) == 3
    assert [words[0] for words in ran] == ["prepare", "pretrain"]
    assert ran[1][-4:] == ["1", "--", "--master_port", "7"]


def test_without_its_packages_it_does_not_start(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepsiam.data_prep.common.extras.find_spec", lambda _: None)
    assert "run: pip install 'deepsiam[evaluate]'" in refused(demo.main)


def test_make_demo_is_this() -> None:
    assert "-m deepsiam demo --gpus $(RANKS)" in (toy.ROOT / "Makefile").read_text()
