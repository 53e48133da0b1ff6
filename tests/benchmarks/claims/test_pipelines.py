"""The table of quality against forward passes: from files of trainer.evaluate, the mean of several seeds."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims.pipelines import main
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import About, SystemStage, results_of, write_results

METRICS = ("mrr@10", "ndcg@10", "recall@100")
BM25 = SystemStage(stage="bm25", seconds=2.0, passes=0)
MONO = SystemStage(stage="> 1000 runs/mono", seconds=8.0, passes=1000, depth=1000)
DUO = SystemStage(stage="> 50 runs/duo", seconds=10.0, passes=2450, depth=50)


def results(file: Path, value: float, *names: str) -> str:
    """A file of systems; each metric of the i-th is `value` + i / 100."""
    stages = {"duo": [BM25, MONO, DUO], "bm25": [BM25], "mono": [BM25, MONO], "file": [SystemStage(stage="x.trec")]}
    measured = {
        name: Metrics({metric: np.full(4, value + i / 100) for metric in METRICS}) for i, name in enumerate(names)
    }
    made = {name: (name, stages[name]) for name in names}
    write_results(file, results_of(measured, made, About(collection="c", split="test", queries=4, corpus=9)))
    return str(file)


def test_systems_are_sorted_by_their_forward_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([results(tmp_path / "1", 0.25, "bm25", "duo", "mono", "file")])
    assert capsys.readouterr().out.splitlines() == [
        "| system | forward passes a query | seconds a query | MRR@10 | nDCG@10 | Recall@100 | p against BM25 |",
        "|---|---|---|---|---|---|---|",
        "| BM25 | 0 | 0.5 | 0.2500 | 0.2500 | 0.2500 |  |",
        "| file |  | 0 | 0.2800 | 0.2800 | 0.2800 | 0.1260 |",
        "| mono | 1,000 | 2.5 | 0.2700 | 0.2700 | 0.2700 | 0.1260 |",
        "| duo | 3,450 | 5 | 0.2600 | 0.2600 | 0.2600 | 0.1260 |",
    ]


def test_seeds_are_averaged_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([results(tmp_path / "1", 0.25, "bm25", "duo"), results(tmp_path / "2", 0.35, "bm25", "duo")])
    assert "| duo | 3,450 | 5 | 0.3100 (0.2600, 0.3600) | 0.3100 | 0.3100 | 0.1260, 0.1260 |" in capsys.readouterr().out


def test_files_of_other_systems_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([results(tmp_path / "1", 0.25, "bm25", "duo"), results(tmp_path / "2", 0.25, "bm25", "mono")])
    assert stopped.value.code == 2
    assert "2: has other systems than " in capsys.readouterr().err
