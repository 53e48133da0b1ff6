"""The moving average without ranks: its numbers, the exchange with the weights, what is refused.

tests/trainer/launches/test_moving_average.py has ZeRO, checkpoints and probes.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine.moving_average import MovingAverage
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import save_run, set_invariants, write_run

WEIGHTS = [torch.nn.Parameter(torch.randn(3, 5)), torch.nn.Parameter(torch.randn(4))]


def test_after_many_steps_it_is_the_weighted_mean_in_fp64() -> None:
    weight, steps, decay = torch.nn.Parameter(torch.randn(50)), 2000, 0.999
    average, after = MovingAverage(torch.optim.SGD([weight], lr=0.1), decay), []
    generator = torch.Generator().manual_seed(0)
    for step in range(1, steps + 1):
        with torch.no_grad():
            weight.add_(torch.randn(50, generator=generator) * 0.01)
        average.update(step)
        after.append(weight.detach().double())
        if step in (1, 2, 3, 100, steps):
            shares = decay ** torch.arange(step - 1, -1, -1, dtype=torch.float64)
            expected = (shares / shares.sum()) @ torch.stack(after)
            torch.testing.assert_close(average.averages[0].double(), expected, rtol=2e-6, atol=2e-6)
    assert torch.equal(weight.detach().double(), after[-1])


def test_it_is_loaded_from_its_models_file_and_exchanged_twice_all_is_as_before_to_the_bit(tmp_path: Path) -> None:
    average = MovingAverage(torch.optim.SGD(WEIGHTS, lr=0.1), 0.9)
    saved = {"a": torch.randn(3, 5), "b": torch.randn(4)}
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    weights = [weight.detach().clone() for weight in WEIGHTS]
    save_file(saved, tmp_path / "saved")
    average.load(tmp_path / "saved", dict(zip(saved, WEIGHTS, strict=True)), shapes, World(0, 1, 0, 1))
    for exchanged in (False, True, False):
        assert all(map(torch.equal, WEIGHTS, saved.values() if exchanged else weights))
        assert all(map(torch.equal, average.averages, weights if exchanged else saved.values()))
        average.exchange()
    average.exchange()
    with pytest.raises(InputError, match="saved: its weights are not those of the model"):
        average.load(tmp_path / "saved", {}, {**shapes, "b": (5,)}, World(0, 1, 0, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swap_optimizer": True}, "keeps them on a disk: offload to the CPU instead"),
        ({"param_groups": [{"params": [torch.zeros(2, dtype=torch.bfloat16)]}]}, "has them in half precision"),
        ({}, "is half precision without ZeRO: use zero_optimization.stage 1"),
    ],
)
def test_what_deepspeed_does_not_keep_in_fp32_in_memory_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SharedError, match=f"optimizer.ema: averages fp32 weights, and deepspeed's file {message}"):
        MovingAverage(SimpleNamespace(**{"param_groups": [{"params": [torch.zeros(2)]}], **changes}), 0.9)


def test_frozen_weights_are_refused_before_the_training(toy_collection: Path, tmp_path: Path) -> None:
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="mlm")
    for trained in (0, 1, "all_but_embeddings", {"lora": {"rank": 2, "targets": ["query"]}}):
        changes = {"method": {"projection": 8}, "optimizer": {"lr": 1e-3, "train": trained, "ema": 0.9}}
        values = toy.finetune_values(tmp_path / "run", toy_collection, init_from=str(start), **changes)
        with pytest.raises(InputError, match="optimizer.ema: averages all weights, and this run leaves some as they a"):
            finetuning.build(build(FinetuneRecipe, values, "test"))


def test_a_resumed_run_keeps_its_decay(toy_collection: Path, tmp_path: Path) -> None:
    def job(**optimizer: float) -> Any:
        values = toy.finetune_values(tmp_path / "run", toy_collection, trunk=toy.TRUNK)
        return finetuning.build(build(FinetuneRecipe, {**values, "optimizer": {"lr": 1e-3, **optimizer}}, "test"))

    without, averaged = job(), job(ema=0.9)
    assert "ema" not in without.resume_invariants["optimizer"]  # as in checkpoints of older code
    for saved, resumed, message in (
        (without, averaged, "saved with optimizer.ema=None, the recipe now says 0.9"),
        (averaged, without, "saved with optimizer.ema=0.9, the recipe now says None"),
        (averaged, job(ema=0.99), "saved with optimizer.ema=0.9, the recipe now says 0.99"),
    ):
        run = tmp_path / f"{id(saved)}-{id(resumed)}"
        set_invariants(save_run(run, saved), saved.resume_invariants)
        with pytest.raises(InputError, match=message):
            checkpoint.check_continues(checkpoint.find(run), resumed.resume_invariants)
