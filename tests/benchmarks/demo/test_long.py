"""make demo-long: measurements are kept, and the tables show who leads."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.demo import long
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Record the settings of every training instead of training; a run's MRR is its learning rate."""
    settings_of_runs: list[dict[str, object]] = []

    def train(module: str, recipe: str, run: Path, settings: dict[str, object]) -> None:
        settings_of_runs.append(settings)

    def evaluate(ranker: object, split: str) -> SimpleNamespace:
        return SimpleNamespace(values={"mrr@10": np.full(3, settings_of_runs[-1]["optimizer.lr"])})

    stand_ins: dict[str, Callable[..., object]] = {
        "train": train,
        "evaluate_split": evaluate,
        "load_trained": lambda run: run,
        "ranker_of": lambda run, collection: run,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(long, name, stand_in)
    return settings_of_runs


def test_the_rate_is_chosen_for_each_start_and_number_of_labels(
    tmp_path: Path, trained: list[dict[str, object]]
) -> None:
    bench = long.LabelsBench(None, tmp_path / "results.json")  # type: ignore[arg-type]
    assert bench.best_rate("random", None) == max(long.RATES)
    assert [settings["optimizer.lr"] for settings in trained] == list(long.RATES)
    assert {settings["random_weights"] for settings in trained} == {"true"}
    assert {settings["data.pairs"] for settings in trained} == {"null"}


def test_both_pre_trainings_differ_only_in_their_method() -> None:
    seed, mlm = (
        load(PretrainRecipe, Path(f"recipes/demo_long_{start}.yaml")).model_dump() for start in ("seed", "mlm")
    )
    assert (seed.pop("method")["name"], mlm.pop("method")["name"]) == ("seed", "mlm")
    assert (seed.pop("run"), mlm.pop("run")) == (long.PRETRAINED["seed"], long.PRETRAINED["mlm"])
    assert seed == mlm


def test_a_table_shows_means_and_p_values() -> None:
    better, worse = [1.0] * 30, [0.5] * 30
    rows = long.table("labels", {"random": {500: worse}, "seed": {500: better}}).splitlines()
    assert rows[0] == "| labels | random weights | SEED | p, SEED against random weights |"
    assert rows[2].startswith("| 500 | 0.5000 | 1.0000 | 0.0")
