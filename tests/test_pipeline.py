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


def finetune(pretrained: Path, collection: Path, run: str, ranks: int) -> Path:
    recipe = toy.finetune_recipe(
        pretrained.parent / f"{run}.yaml",
        collection,
        init_from=str(pretrained),
        steps=10,
        data={"collection": str(collection), "lanes": 8, "pairs": 60},
        batch={"size": 16, "micro": 4},
        method={"similarity": "cosine", "temperature": 0.05},
    )
    done = toy.launch(ranks, "trainer.finetune", recipe)
    assert done.returncode == 0, done.stderr
    return pretrained.parent / run


@pytest.fixture(scope="module")
def tuned(pretrained: Path, toy_collection: Path) -> list[Path]:
    """The same fine-tuning on one rank and on two."""
    return [finetune(pretrained, toy_collection, f"on_{ranks}", ranks) for ranks in (1, 2)]


def test_fine_tuning_is_the_same_on_one_rank_and_on_two(tuned: list[Path]) -> None:
    one, two = (toy.scalars(run, "loss/softmax") for run in tuned)
    assert list(one) == list(range(1, 11))
    # dropout is on: it depends on the micro-batch, not on the rank
    assert list(one.values()) == pytest.approx(list(two.values()), rel=1e-4)
    assert one[10] < one[1]


def test_a_finished_run_is_not_resumed(tuned: list[Path]) -> None:
    again = toy.launch(2, "trainer.finetune", tuned[0].with_suffix(".yaml"), "--resume")
    assert again.returncode == 0
    assert "is already trained to its last step" in again.stdout


def test_runs_become_a_table_an_export_and_a_report(tuned: list[Path], toy_collection: Path) -> None:
    runs = tuned[0].parent

    def run(module: str, *arguments: object) -> str:
        done = toy.run(module, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    systems = ["--system", "bm25", *(word for path in tuned for word in ("--system", f"{path.name}={path}"))]
    out = ["--out", runs / "results.json"]
    table = run("trainer.evaluate", "--collection", toy_collection, "--split", "test", *systems, *out)
    results = json.loads((runs / "results.json").read_text())
    assert (results["about"]["queries"], results["about"]["corpus"]) == (20, 120)
    for name in ("bm25", "on_1", "on_2"):
        assert f"{results['systems'][name]['metrics']['mrr@10']:.4f}" in table
    assert re.search(r"^MRR@10: on_2 [0-9.]+ against on_1 ", table, re.MULTILINE)
    run("trainer.export", tuned[0], runs / "export")
    assert len(run("trainer.report", runs).splitlines()) == 5
    for plot in ("seed", "on_1", "on_2", "results"):
        assert (runs / "plots" / f"{plot}.png").stat().st_size > 1000
    assert (runs / "export" / "modules.json").is_file()
