"""Adamax, partly frozen encoders and plateaus on real ranks: ZeRO stages, precisions, stopping and resuming."""

from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.lr_scheduler import ReduceLROnPlateau

from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.many_runs import LOSS_SCALE_POWER, ds_config, stage_file, train_and_resume
from tests.trainer.runs import write_run

pytestmark = pytest.mark.slow  # real processes

STEPS = 6
LR = 3e-3
KINDS = {
    "adamax": ["optimizer.name=adamax"],
    "heads": ["optimizer.train=0"],
    "top": ["optimizer.train=1", "optimizer.name=adamax"],
    "plateau": ["optimizer.train=all_but_embeddings", "optimizer.plateau={factor: 0.4}", "validation.every=1"],
}
FROZEN = {
    "heads": ("trunk.",),
    "top": ("trunk.embeddings.", "trunk.encoder.layer.0."),
    "plateau": ("trunk.embeddings.",),
}
# every kind, stage and precision; a step at stage 3 takes ten times as long as one at stages 1 and 2
FP32 = [("adamax", "zero1"), ("heads", "zero2"), ("top", "zero3"), ("plateau", "zero1"), ("plateau", "zero2")]
HALF = [("adamax", "zero3_fp16"), ("top", "zero1_bf16")]
RESUMED = [("adamax", "zero1"), ("top", "zero3"), ("plateau", "zero2")]
if toy.FULL_TESTS:
    FP32 = list(product(KINDS, ("zero1", "zero2", "zero3")))
    HALF = list(product(("adamax", "top"), ("zero1_bf16", "zero1_fp16", "zero3_bf16", "zero3_fp16")))


@pytest.fixture(scope="module")
def recipe(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuning with head and dropout at a constant rate; the large weight decay would show in a frozen weight."""
    folder, tokenizer = tmp_path_factory.mktemp("optimizers"), toy_collection / "tokenizer.json"
    # frozen layers that no seed draws again; with large weights, so that different texts get different vectors
    start = write_run(folder / "start", tokenizer, trunk={**toy.TRUNK, "initializer_range": 0.2}, name="siamese")
    return toy.finetune_recipe(
        folder / "run.yaml",
        toy_collection,
        steps=STEPS,
        validation={"split": "test", "every": 3},
        trunk=None,
        init_from=str(start),
        method={"loss": "softmax", "projection": 16, "temperature": 4.0},
        # with a small eps, rounding alone could move a weight by a whole lr
        optimizer={"lr": LR, "eps": 1e-3, "weight_decay": 0.1, "schedule": "constant"},
        checkpoint={"every": STEPS // 2},
    )


@pytest.fixture(scope="module")
def runs(recipe: Path) -> Path:
    """A folder with the runs KIND-RANKS-CONFIG.

    Runs on 2 ranks that ended half-way and were resumed end in -same (on 2 ranks) and -other (on one rank).
    """
    folder = recipe.parent
    files = {f"zero{stage}": stage_file(folder, stage) for stage in (1, 2, 3)}
    files |= {config: ds_config(folder, config, LOSS_SCALE_POWER) for _, config in HALF}

    def run(kind: str, config: str, name: str, *changes: str) -> list[object]:
        folders = [f"run={folder}/{kind}-{name}", f"deepspeed={files[config]}"]
        return [recipe, *folders, f"optimizer.lr={LR}", *KINDS[kind], *changes]

    whole = [run(kind, config, f"2-{config}") for kind, config in [*FP32, *HALF]]
    alone = [run(kind, "zero1", "1-zero1") for kind in KINDS]
    train_and_resume(whole, alone, RESUMED, run, STEPS, folder)
    return folder


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run, STEPS) / checkpoint.WEIGHTS)


def compare(run: Path, expected: Path, first: int, *, exact: bool) -> None:
    """Check that a run has another run's losses, rates and norms from step `first`, and its final weights."""
    for tag in ("loss/softmax", "validation/softmax", "lr", "grad_norm"):
        seen = {step: value for step, value in toy.scalars(run, tag).items() if step >= first}
        others = {step: value for step, value in toy.scalars(expected, tag).items() if step >= first}
        assert max(seen) == STEPS
        assert seen == (others if exact else pytest.approx(others, rel=1e-4))
    weights = weights_of(run)
    for name, weight in weights_of(expected).items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=0 if exact else 1e-5)


@pytest.mark.parametrize(("kind", "config"), FP32)
def test_ranks_and_stages_change_nothing(runs: Path, kind: str, config: str) -> None:
    compare(runs / f"{kind}-2-{config}", runs / f"{kind}-1-zero1", 1, exact=False)


@pytest.mark.parametrize(("kind", "config"), HALF)
def test_half_precision_agrees(runs: Path, kind: str, config: str) -> None:
    seen, expected = (toy.scalars(runs / f"{kind}-{run}", "loss/softmax") for run in (f"2-{config}", "1-zero1"))
    assert seen == pytest.approx(expected, rel=3e-2 if "bf16" in config else 3e-3)


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_stopped_and_resumed_it_is_the_same_run_to_the_bit(runs: Path, kind: str, config: str) -> None:
    compare(runs / f"{kind}-2-{config}-same", runs / f"{kind}-2-{config}", 1, exact=True)


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_it_resumes_with_another_number_of_ranks(runs: Path, kind: str, config: str) -> None:
    compare(runs / f"{kind}-2-{config}-other", runs / f"{kind}-2-{config}", STEPS // 2 + 1, exact=False)


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        *((kind, f"2-{config}") for kind, config in [*FP32, *HALF] if kind in FROZEN),
        *((kind, f"2-{config}-{ranks}") for kind, config in RESUMED if kind in FROZEN for ranks in ("same", "other")),
    ],
)
def test_frozen_weights_are_saved_and_do_not_change(recipe: Path, runs: Path, kind: str, run: str) -> None:
    weights, model = weights_of(runs / f"{kind}-{run}"), finetuning.build(load(FinetuneRecipe, recipe)).model
    assert weights.keys() == dict(model.named_parameters()).keys()
    precision = torch.bfloat16 if "bf16" in run else torch.float16 if "fp16" in run else torch.float32
    for name, parameter in model.named_parameters():
        as_it_ran = parameter.detach().to(precision).float()  # the checkpoint file stores fp32
        assert torch.equal(weights[name], as_it_ran) == name.startswith(FROZEN[kind]), name


def test_the_rate_falls_at_plateaus_as_pytorch_lowers_it(runs: Path) -> None:
    losses, rates = (toy.scalars(runs / "plateau-2-zero1", tag) for tag in ("validation/softmax", "lr"))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=LR)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.4, patience=0)
    for step in range(1, STEPS + 1):
        assert rates[step] == pytest.approx(optimizer.param_groups[0]["lr"])
        scheduler.step(losses[step])
    assert rates[1] > rates[STEPS // 2] > rates[STEPS]
