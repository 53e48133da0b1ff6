"""A teacher's vectors beside labels on real ranks: the same training for any number of ranks and stage, resumed too."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.many_runs import copy_half_way, stage_file, train

pytestmark = pytest.mark.slow

STEPS = 4
STAGES = (1, 2, 3)
TERMS = ("softmax", "vectors", "batch_kl")


@pytest.fixture(scope="module")
def runs(taught_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs RANKS-STAGE; 2-same and 1-other were stopped half-way and resumed."""
    folder, teacher = tmp_path_factory.mktemp("teacher"), toy.vectors_beside(taught_collection)
    recipe = toy.finetune_recipe(
        folder / "run.yaml",
        taught_collection,
        steps=STEPS,
        data={"collection": str(taught_collection), "lanes": 4, "window": 2, "teacher": str(teacher)},
        batch={"size": 8, "micro": 2},
        trunk={**toy.TRUNK, "initializer_range": 0.2},
        method={
            "loss": {"softmax": 1.0, "vectors": 2.0, "batch_kl": 0.5},
            "negatives": "step",
            "similarity": "cosine",
            "temperature": 0.1,
            "teacher_width": 32,
        },
        optimizer={"lr": 3e-3, "eps": 1e-3, "schedule": "constant"},  # with a small eps rounding could move a weight
        checkpoint={"every": STEPS // 2},
    )
    stages = {stage: f"deepspeed={stage_file(folder, stage)}" for stage in STAGES}
    halves = [[recipe, f"run={folder}/2-same", stages[2], f"steps={end}"] for end in (STEPS // 2, STEPS)]
    train(2, [*halves, *([recipe, f"run={folder}/2-{stage}", stages[stage]] for stage in STAGES)], folder)
    copy_half_way(folder / "2-2", STEPS // 2, folder / "1-other")
    train(1, [[recipe, f"run={folder}/{name}", stages[2]] for name in ("1-2", "1-other")], folder)
    return folder


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run, STEPS) / checkpoint.WEIGHTS)


@pytest.mark.parametrize("name", ["2-1", "2-2", "2-3", "1-other"])
def test_losses_and_weights_are_those_of_one_rank(runs: Path, name: str) -> None:
    for term in TERMS:
        losses = toy.scalars(runs / name, f"loss/{term}")
        whole = {step: toy.scalars(runs / "1-2", f"loss/{term}")[step] for step in losses}
        assert losses == pytest.approx(whole, rel=1e-5)
        assert len(losses) >= STEPS // 2
    for weight, tensor in weights_of(runs / "1-2").items():
        torch.testing.assert_close(weights_of(runs / name)[weight], tensor, rtol=1e-4, atol=2e-6)


def test_a_resumed_run_has_the_same_weights(runs: Path) -> None:
    whole, resumed = weights_of(runs / "2-2"), weights_of(runs / "2-same")
    assert whole.keys() == resumed.keys() > {"teacher_head.weight"}
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
