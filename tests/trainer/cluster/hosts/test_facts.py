"""What a host reports about itself."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepsiam.trainer.cluster.hosts.facts import gather
from tests import toy
from tests.trainer.cluster.hosts.test_checks import FACTS


def told(*of: object) -> dict[str, Any]:
    done = toy.run("trainer.cluster.hosts.facts", *of)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_recipe_is_known_by_its_values_and_those_that_it_extends(tmp_path: Path) -> None:
    below = toy.write_recipe(tmp_path / "below.yaml", seed=1)
    above = toy.write_recipe(tmp_path / "above.yaml", extends="below.yaml", steps=2)
    before = gather(recipe=above).versions["recipe"]
    assert before == gather(recipe=above).versions["recipe"]
    toy.write_recipe(below, seed=3)
    assert gather(recipe=above).versions["recipe"] != before
    below.unlink()
    assert gather(recipe=above).versions["recipe"] == "unreadable"
    assert "recipe" not in gather().versions


def test_a_package_that_one_checkout_does_not_compare_differs() -> None:
    newer = replace(FACTS, versions={**FACTS.versions, "numpy": "2.4"})
    assert newer.differ_from(FACTS) == "numpy 2.4, not none"
    assert FACTS.differ_from(newer) == "numpy none, not 2.4"


def test_all_that_decides_the_numbers_is_compared() -> None:
    decides = {"Python", "commit", "code", "torch", "numpy", "tokenizers", "deepspeed", "transformers", "webdataset"}
    assert gather().versions.keys() >= decides


def test_a_host_that_trains_on_its_cpu_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: SimpleNamespace(total_memory=8 << 30))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert gather().gpus == []
    monkeypatch.delenv("DS_ACCELERATOR")
    assert gather().gpus == [8 << 30] * 2


def test_the_command_takes_none_or_all_of_its_arguments(shards: Path, tmp_path: Path) -> None:
    assert told()["cache_free"] == 0
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    facts = told(tmp_path, toy.free_port(), recipe, tmp_path / "cache" / "shards")
    assert facts["files"] == ["run.yaml"]
    assert facts["port_is_free"]
    assert facts["cache_free"] > 0
    assert facts["versions"]["recipe"] == gather(recipe=recipe).versions["recipe"]
