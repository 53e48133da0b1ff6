"""What a run measures: the mean loss over every target of the held-out data; and its learning rate."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.measures import LearningRate, held_out_losses
from tests import toy
from tests.trainer.training.data.integers import UNEVEN, Echo, Numbers

HELD_OUT = HeldOut(Numbers(UNEVEN), Echo(), seed=1, window=2, micro_batch=4)


class OneRank:
    """An engine of one rank whose loss is a sum of sines over its micro-batch."""

    terms = ("loss",)
    world = World(0, 1, 0, 1)

    def __init__(self) -> None:
        self.evaluated = 0

    def evaluate(self, batch: MicroBatch, source: int) -> torch.Tensor:
        self.evaluated += 1
        return torch.tensor([float(np.sin(batch.arrays["items"]).sum())])

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def gather(self, value: Any) -> list[Any]:
        return [value]


def test_the_loss_is_the_mean_over_every_target_and_each_batch_is_progress() -> None:
    beats: list[int] = []
    engine = OneRank()
    losses = held_out_losses([HELD_OUT], engine, lambda: beats.append(1))  # type: ignore[arg-type]
    batches = list(HELD_OUT.micro_batches(0, 1))
    expected = math.fsum(float(np.float32(np.sin(batch.arrays["items"]).sum())) for batch in batches)
    assert losses == {"loss": pytest.approx(expected / (sum(UNEVEN) * 3), rel=1e-12)}
    assert len(beats) == engine.evaluated == len(batches)


@pytest.mark.parametrize(("warmup_steps", "said"), [(10, ""), (11, "warmup_steps=11 is more than steps=10: the lear")])
def test_a_warm_up_that_never_ends_is_said(capsys: pytest.CaptureFixture[str], warmup_steps: int, said: str) -> None:
    optimizer = {"lr": 1e-4, "warmup_steps": warmup_steps}
    rate = LearningRate(build(PretrainRecipe, {**toy.SEED_RECIPE, "optimizer": optimizer}, "test"))
    err = capsys.readouterr().err
    assert said in err
    assert bool(err) == bool(said) == (rate.at(9) < 1e-4)
