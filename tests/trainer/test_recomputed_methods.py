"""Activation checkpointing changes no loss and no gradient of any method."""

from pathlib import Path
from typing import Any

import pytest
import torch

from deepsiam.models.registry import MATCHING, PRETRAINING
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.launches.test_matching import DECODERS, KEYS, OF_CLASSES, OWN
from tests.trainer.launches.test_methods import METHODS
from tests.trainer.many_runs import job_of

TRUNK = {**toy.TRUNK, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def losses(job: Job) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor | None]]:
    """The losses and gradients of the first micro-batch, with dropout."""
    arrays = next(iter(job.order.stream(job.order.start(), 0, 1))).micro_batch.arrays
    torch.manual_seed(5)
    sums = job.model.train()(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    sum(sums.values()).backward()
    return sums, {name: parameter.grad for name, parameter in job.model.named_parameters()}


def check(path: Path, changes: list[str]) -> None:
    job, recomputed = (job_of(path, [*changes, f"activation_checkpointing={value}"]) for value in ("false", "true"))
    assert any("forward" in vars(module) for module in recomputed.model.modules())
    for expected, seen in zip(losses(job), losses(recomputed), strict=True):
        assert expected.keys() == seen.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(seen[name], tensor, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("name", PRETRAINING)
def test_pre_training(shards: Path, pair_shards: Path, taught_shards: Path, tmp_path: Path, name: str) -> None:
    method: dict[str, Any] = {"name": name, **METHODS[name]}
    trunk = {**TRUNK, "is_decoder": True} if name == "clm" else TRUNK
    data = {"pairs": pair_shards, "distil": taught_shards}.get(name, shards)
    check(toy.seed_recipe(tmp_path / "r.yaml", data, trunk=trunk, method=method), [])


@pytest.mark.parametrize("name", MATCHING)
def test_fine_tuning(toy_collection: Path, toy_classes: Path, tmp_path: Path, name: str) -> None:
    collection = toy_classes if name in OF_CLASSES else toy_collection
    method = {"name": name, **KEYS, **OWN.get(name, {})}
    trunk = {**TRUNK, "is_decoder": True} if name in DECODERS else TRUNK
    check(toy.finetune_recipe(tmp_path / "r.yaml", collection, trunk=trunk, method=method), [])
