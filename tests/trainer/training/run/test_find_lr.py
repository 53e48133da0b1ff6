"""The learning-rate range test: its curve and suggestion, and that a run of it leaves nothing behind."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run import find_lr
from deepsiam.trainer.training.run.find_lr import EXAMPLES, RATES, WIDTH, row, suggestion
from tests import toy
from tests.trainer.mixed_recipe import mixed_recipe


def test_the_suggestion_is_a_tenth_of_the_rate_of_the_lowest_loss() -> None:
    losses = [4.0, 4.0, 3.9, 3.5, 2.0, 3.0, math.nan]  # the first is that of no step
    where = f"a tenth of {RATES[3]:.1e}, where the loss was lowest"
    assert suggestion(losses) == f"suggestion: optimizer.lr={RATES[3] / 10:.1e} ({where})"


@pytest.mark.parametrize("losses", [[4.0, 3.99, 5.0], [4.0, 9.0], [math.nan], [4.0, math.inf]])
def test_without_a_fall_there_is_none(losses: list[float]) -> None:
    assert suggestion(losses).startswith("no suggestion: the loss did not fall")


def test_a_rates_line_has_a_bar_that_is_whole_where_the_test_ends() -> None:
    assert row(1e-7, 4.0, 4.0).split() == ["1.0e-07", "4.0000", "#" * (WIDTH // 2)]
    bars = [row(0.1, loss, 4.0).count("#") for loss in (2.0, 8.0, 99.0, math.nan)]
    assert bars == [round(WIDTH / 4), WIDTH, WIDTH, 0]
    assert row(0.1, math.nan, 4.0).endswith("diverged")
    assert row(0.1, 0.0, 0.0).count("#") == 0


def test_the_loss_of_a_mix_is_measured_on_every_source_though_a_step_is_of_one(
    toy_collection: Path, toy_scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_lr, "EXAMPLES", 8)  # one step has them
    recipe = load(FinetuneRecipe, mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored, per="step"))
    measured: Counter[int] = Counter()

    def evaluate_step(_: Sequence[MicroBatch], sources: Sequence[int]) -> torch.Tensor:
        measured.update(sources)
        return torch.zeros(len(sources), len(terms))

    terms = sorted({term for method in recipe.methods for term in method.weights})
    engine: Any = SimpleNamespace(world=World(0, 1, 0, 1), accumulation=4, methods=recipe.methods, terms=terms)
    engine.evaluate_step, engine.sum_over_ranks = evaluate_step, lambda sums: sums
    job: Any = SimpleNamespace(recipe=recipe, order=pair_data(recipe).order)
    assert next(find_lr._losses(job, engine, lambda: None)) == 0.0
    assert measured.keys() == {0, 1, 2}
    steps = sum(measured.values()) // 4
    assert [measured[i] for i in range(3)] == job.order.mix.drawn(steps * 4)
    assert 0 in job.order.mix.drawn((steps - 1) * 4)


BRIEF = "tests.trainer.training.run.brief_find_lr"


@pytest.mark.slow
def test_ranks_print_the_same_curve_from_the_loss_of_training_and_change_no_file(
    toy_collection: Path, tmp_path: Path
) -> None:
    """Losses are measured without dropout; a micro-batch of two pairs has one negative of its own, the step seven."""
    recipe = toy.finetune_recipe(
        tmp_path / "run.yaml",
        toy_collection,
        steps=EXAMPLES // 4 // 8,  # those that are measured
        trunk={**toy.TRUNK, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        method={"similarity": "cosine", "pooling": "mean", "temperature": 0.05, "negatives": "step"},
        optimizer={"lr": 1e-12},  # too low to change the loss of the run
        batch={"size": 8, "micro": 2},
    )

    def curve(ranks: int) -> dict[str, float]:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        done = toy.launch(ranks, BRIEF, recipe, "--find-lr", "trunk.hidden_dropout_prob=0.1")
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"^suggestion: optimizer.lr=\d\.\de-\d\d ", done.stdout, re.MULTILINE)) == 1
        (again,) = re.findall(r"^the data was read (\S+) times: the examples", done.stdout, re.MULTILINE)
        assert float(again) > 1
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
        rows = re.findall(r"^ +(\d\.\de[-+]\d\d) +([\d.]+) ", done.stdout, re.MULTILINE)
        return {rate: float(loss) for rate, loss in rows}

    two = curve(2)
    trained = toy.launch(1, BRIEF, recipe)
    assert trained.returncode == 0, trained.stderr
    one = curve(1)  # beside the run
    assert len(one) > 5
    assert [*one] == ["0.0e+00", *(f"{10.0**n:.1e}" for n in range(-7, 0))][: len(one)]
    assert min(one.values()) < 0.9 * one["0.0e+00"]
    for rate in [*one][:5]:  # later, rounding grows with the rate
        assert two[rate] == pytest.approx(one[rate], rel=1e-3)
    losses = toy.scalars(tmp_path / "run", "loss/softmax")
    assert one["0.0e+00"] == pytest.approx(sum(losses.values()) / len(losses), abs=1e-4)
    assert min(losses.values()) > 1
