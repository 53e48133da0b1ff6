"""Pre-training, fine-tuning, evaluation, export and report, one after another, with real processes on toy data."""

import json
import re
from pathlib import Path

import numpy as np
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
    values = {
        "run": str(pretrained.parent / run),
        "steps": 10,
        "log_every": 1,
        "deepspeed": "cpu",
        "init_from": str(pretrained),
        "data": {"collection": str(collection), "lanes": 8, "pairs": 60},
        "batch": {"size": 16, "micro": 4},
        "method": {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32},
        "optimizer": {"lr": 1e-3},
    }
    recipe = toy.write_recipe(pretrained.parent / f"{run}.yaml", **values)
    done = toy.launch(ranks, "trainer.finetune", recipe, *overrides)
    assert done.returncode == 0, done.stderr
    return pretrained.parent / run


@pytest.mark.parametrize(
    "method",
    [
        ["method.similarity=cosine", "method.temperature=0.05"],
        ["method.loss=hinge", "method.negatives_per_query=2", "method.temperature=8"],
    ],
    ids=["softmax", "hinge"],
)
def test_fine_tuning_is_the_same_on_one_rank_and_on_two(
    pretrained: Path, toy_collection: Path, method: list[str]
) -> None:
    term = "hinge" if "method.loss=hinge" in method else "softmax"
    losses = [
        toy.scalars(finetune(pretrained, toy_collection, f"{term}-{ranks}", ranks, *method), f"loss/{term}")
        for ranks in (1, 2)
    ]
    assert list(losses[0]) == list(range(1, 11))
    # dropout is on: it depends on the micro-batch, not on the rank
    assert list(losses[0].values()) == pytest.approx(list(losses[1].values()), rel=1e-4)
    assert losses[0][10] < losses[0][1]


def test_random_weights_differ_and_a_finished_run_is_not_resumed(pretrained: Path, toy_collection: Path) -> None:
    tuned = finetune(pretrained, toy_collection, "tuned", 1)
    random = finetune(pretrained, toy_collection, "random", 1, "random_weights=true")
    assert toy.scalars(tuned, "loss/softmax")[1] != toy.scalars(random, "loss/softmax")[1]
    again = toy.launch(2, "trainer.finetune", pretrained.parent / "tuned.yaml", "--resume")
    assert again.returncode == 0
    assert "is already trained to its last step" in again.stdout


def test_runs_become_a_table_an_export_and_a_report(pretrained: Path, toy_collection: Path) -> None:
    runs = pretrained.parent
    tuned = finetune(pretrained, toy_collection, "from_seed", 1)
    random = finetune(pretrained, toy_collection, "from_random", 1, "random_weights=true")

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

    from sentence_transformers import SentenceTransformer

    embeddings = SentenceTransformer(str(runs / "export"), device="cpu").encode(["abc def", "ghi"])
    assert embeddings.shape == (2, 32)
    assert np.isfinite(embeddings).all()
