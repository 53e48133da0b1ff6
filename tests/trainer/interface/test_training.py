"""`deepsiam.pretrain` and `deepsiam.finetune`: the command's losses to the bit, in this process or by the launcher."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.interface.training import finetune, pretrain
from deepsiam.trainer.training.recipe.yaml_file import extended
from tests import toy


@pytest.fixture
def recipe(shards: Path, tmp_path: Path) -> Path:
    return toy.seed_recipe(tmp_path / "run.yaml", shards, steps=4)


def losses(run: Path) -> dict[str, dict[int, float]]:
    return {tag: toy.scalars(run, tag) for tag in ("loss/mlm", "loss/decoder", "grad_norm")}


def test_several_trainings_in_one_process_have_the_command_s_losses(recipe: Path, tmp_path: Path) -> None:
    done = toy.launch(1, "trainer.pretrain", recipe, "optimizer.lr=2e-3")
    assert done.returncode == 0, done.stderr
    here = toy.run("tests.trainer.interface.trained_in_turn", recipe, tmp_path)
    assert here.returncode == 0, here.stderr
    assert here.stdout.endswith("end of the script\n")
    assert f"stopped: {tmp_path}/second: stopped on request, saved: " in here.stdout
    assert f"refused: {tmp_path}/second contains a run (step-00000004): " in here.stdout
    expected = losses(tmp_path / "run")
    assert len(expected["loss/mlm"]) == 4
    assert losses(tmp_path / "first") == losses(tmp_path / "second") == expected
    weights = "checkpoints/step-00000004/weights.safetensors"
    assert (tmp_path / "second" / weights).read_bytes() == (tmp_path / "run" / weights).read_bytes()


@pytest.mark.slow
def test_ranks_are_launched_and_their_output_passes_through(
    recipe: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in toy.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(toy.ROOT), prepend=":")
    monkeypatch.setattr(sys, "executable", str(toy.forked_python()))
    values = yaml.safe_load(recipe.read_text())
    assert pretrain({**values, "steps": 1}, gpus=2, run=tmp_path / "two") == tmp_path / "two"
    assert "2 x cpu" in capfd.readouterr().out
    expected = toy.launch(2, "trainer.pretrain", recipe, "steps=1")
    assert expected.returncode == 0, expected.stderr
    assert losses(tmp_path / "two") == losses(tmp_path / "run")
    with pytest.raises(InputError, match=r"^\S+/two contains a run \(step-00000001\): add --res"):
        pretrain(recipe, gpus=2, run=tmp_path / "two")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"optimizer.lrr": 1}, "RECIPE: optimizer.lrr: unknown key; did you mean optimizer.lr?"),
        ({"optimizer": {"lrr": 1}}, "RECIPE: optimizer.lrr: unknown key; did you mean optimizer.lr?"),
        ({"batch": {"size": "x"}}, "RECIPE: batch.size: input should be a valid integer, "),
        ({"imports": ["no.module"]}, "RECIPE: imports: Python finds no module no.module: install its package"),
        ({"gpus": 0}, "gpus: give a number of ranks, or None to train in this process, not 0"),
        ({"gpus": True}, "gpus: give a number of ranks, or None to train in this process, not True"),
        ({"data.shards": Path("no/shards")}, "no/shards/manifest.json: "),
        ({"ranks": 2}, "ranks: 2 are expected, and 1 were started"),
    ],
)
def test_bad_input_is_the_command_s_line(keys: dict[str, Any], line: str, recipe: Path) -> None:
    with pytest.raises(InputError, match=re.escape(line.replace("RECIPE", str(recipe)))):
        pretrain(recipe, **keys)


@pytest.mark.parametrize(
    ("train", "given", "line"),
    [
        (pretrain, 7, "^7 is no recipe: give a file, the name of a packaged one, or a dict of keys$"),
        (pretrain, "no/file.yaml", "^no/file.yaml: "),
        (finetune, {"steps": 1}, "^the recipe: method: missing"),
        (finetune, None, "input should be one of .*'siamese'.*, not 'seed': train it by trainer.pretrain"),
    ],
)
def test_what_is_no_recipe(train: Callable[..., Path], given: Any, line: str, recipe: Path) -> None:
    with pytest.raises(InputError, match=line):
        train(given or recipe)


def test_a_thread_and_a_rank_are_refused(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def train() -> None:
        try:
            pretrain(recipe)
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    train()
    assert [line.partition(",")[0] for line in said] == ["a training handles signals", "this process is rank 1 of 2"]


def test_keys_are_merged_as_by_extends() -> None:
    base = {"a": {"b": 1, "c": {"d": 2}}, "data": {"shards": "x", "lanes": 4}, "method": {"name": "seed", "window": 8}}
    keys = {"a.c.e": 3, "a": {"b": 4}, "data.mix": {"n": {"shards": "y"}}, "method": {"name": "mlm"}}
    assert extended(base, keys) == {
        "a": {"b": 4, "c": {"d": 2, "e": 3}},
        "data": {"lanes": 4, "mix": {"n": {"shards": "y"}}},  # in place of the shards
        "method": {"name": "mlm"},
    }
    assert base["a"] == {"b": 1, "c": {"d": 2}}
