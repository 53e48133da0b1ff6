"""trainer.evaluate --metrics."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.metrics import HEADINGS
from deepsiam.trainer.ranking.rankers import registry
from tests.trainer.ranking.retrieval.fakes import tokens_run


@pytest.fixture(autouse=True)
def _model(toy_collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = tokens_run(Collection.open(toy_collection))
    monkeypatch.setattr(registry, "load_any", lambda _: trained)


def run(collection: Path, out: Path, *options: str) -> dict[str, Any]:
    evaluate.main([f"--collection={collection}", "--split=test", f"--out={out}", "--system=m=/", *options])
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def test_more_metrics_are_more_columns(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=bm25", "--system=fused=fuse(bm25, m)"]
    plain = run(toy_collection, tmp_path / "plain.json", *systems)
    capsys.readouterr()
    more = ["--metrics", "recall@3", "mrr@10", "recall@1000", "recall@3"]
    results = run(toy_collection, tmp_path / "more.json", *systems, *more)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [*HEADINGS.values(), "Recall@3", "Recall@1000"]
    assert results["about"]["metrics"] == ["recall@3", "recall@1000"]
    for line, (name, system) in zip(lines[1:4], results["systems"].items(), strict=True):
        means = system["metrics"]
        assert line.split()[1:] == [f"{means[metric]:.4f}" for metric in (*HEADINGS, "recall@3", "recall@1000")]
        assert {metric: means[metric] for metric in HEADINGS} == plain["systems"][name]["metrics"]
    means = results["systems"]["m"]["metrics"]
    assert means["recall@1000"] == 1  # all documents of the pool
    assert means["recall@3"] < 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--metrics", "precision@5"],
            "--metrics: 'precision@5' is not a metric: write mrr@K, ndcg@K, recall@K, map@K, with K from 1 to",
        ),
        (["--candidates", "--metrics", "mrr@5"], "--metrics is for rankings of the whole pool"),
    ],
)
def test_metrics_that_cannot_be_measured_are_refused(
    toy_collection: Path, tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(toy_collection, tmp_path / "r.json", *options)
    assert exit_.value.code == 2
    assert words in capsys.readouterr().err
