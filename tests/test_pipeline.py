"""Pre-training, fine-tuning, evaluation, export and report, one after another, with real processes on toy data."""

import json
import re
from pathlib import Path

import pytest

from tests import toy

pytestmark = pytest.mark.slow  # each stage starts real processes


@pytest.fixture(scope="module")
def pretrained(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    recipe = toy.seed_recipe(folder / "seed.yaml", shards, steps=12)
    done = toy.launch(2, "trainer.pretrain", recipe)
    assert done.returncode == 0, done.stderr
    return folder / "seed"


def finetune(pretrained: Path, collection: Path, run: str, ranks: int, *overrides: str) -> Path:
    recipe = toy.finetune_recipe(
        pretrained.parent / f"{run}.yaml",
        collection,
        init_from=str(pretrained),
        steps=10,
        data={"collection": str(collection), "lanes": 8, "pairs": 60},
        batch={"size": 16, "micro": 4},
        method={"similarity": "cosine", "temperature": 0.05},
    )
    done = toy.launch(ranks, "trainer.finetune", recipe, *overrides)
    assert done.returncode == 0, done.stderr
    return pretrained.parent / run


@pytest.fixture(scope="module")
def tuned(pretrained: Path, toy_collection: Path) -> Path:
    return finetune(pretrained, toy_collection, "from_seed", 1)


@pytest.fixture(scope="module")
def random(pretrained: Path, toy_collection: Path) -> Path:
    return finetune(pretrained, toy_collection, "from_random", 1, "random_weights=true")


def test_fine_tuning_is_the_same_on_one_rank_and_on_two(pretrained: Path, tuned: Path, toy_collection: Path) -> None:
    two = finetune(pretrained, toy_collection, "on_two", 2)
    losses = [toy.scalars(run, "loss/softmax") for run in (tuned, two)]
    assert list(losses[0]) == list(range(1, 11))
    # dropout is on: it depends on the micro-batch, not on the rank
    assert list(losses[0].values()) == pytest.approx(list(losses[1].values()), rel=1e-4)
    assert losses[0][10] < losses[0][1]


def test_random_weights_differ_and_a_finished_run_is_not_resumed(tuned: Path, random: Path) -> None:
    assert toy.scalars(tuned, "loss/softmax")[1] != toy.scalars(random, "loss/softmax")[1]
    again = toy.launch(2, "trainer.finetune", tuned.with_suffix(".yaml"), "--resume")
    assert again.returncode == 0
    assert "is already trained to its last step" in again.stdout


def test_runs_become_a_table_an_export_and_a_report(tuned: Path, random: Path, toy_collection: Path) -> None:
    runs = tuned.parent

    def run(module: str, *arguments: object) -> str:
        done = toy.run(module, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    systems = ["--system", "bm25", "--system", f"from_random={random}", "--system", f"from_seed={tuned}"]
    out = ["--out", runs / "results.json"]
    table = run("trainer.evaluate", "--collection", toy_collection, "--split", "test", *systems, *out)
    results = json.loads((runs / "results.json").read_text())
    assert (results["about"]["queries"], results["about"]["corpus"]) == (20, 120)
    for name in ("bm25", "from_random", "from_seed"):
        assert f"{results['systems'][name]['metrics']['mrr@10']:.4f}" in table
    assert re.search(r"^MRR@10: from_seed [0-9.]+ against from_random ", table, re.MULTILINE)
    run("trainer.export", tuned, runs / "export")
    assert len(run("trainer.report", runs).splitlines()) == 5
    for plot in ("seed", "from_seed", "from_random", "results"):
        assert (runs / "plots" / f"{plot}.png").stat().st_size > 1000
    assert (runs / "export" / "modules.json").is_file()
