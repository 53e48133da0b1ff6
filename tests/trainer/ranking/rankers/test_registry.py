"""A kind of ranker is one file and one line: that of examples/ ranks, scores and mines."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import import_named
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.task import Task, evaluate_split
from deepsiam.trainer.ranking.mining import mine, mining_texts
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers import registry
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.own_code import EXAMPLES, own_code
from tests.trainer.ranking.retrieval.fakes import overlap_run, tokens_run
from tests.trainer.runs import write_run


@pytest.fixture
def euclidean(opened: Collection, tmp_path: Path) -> Iterator[ModelRanker]:
    """A ranker of the kind in examples/, around a trained Siamese network."""
    keys = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 24}
    loaded = load_trained(write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, **keys))
    loaded.model.kind = "euclidean"  # type: ignore[assignment]
    with own_code(EXAMPLES):
        import_named("deepsiam_examples.euclidean", "the test")
        yield ranker_of(loaded, opened)


def test_a_kind_is_a_file_and_a_line(
    euclidean: ModelRanker, opened: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.of(opened, "test")
    embedded = registry.RANKERS["dense"](euclidean.loaded, opened).system(task)
    queries, documents = (vectors.astype(np.float64) for vectors in (embedded.queries, embedded.documents))  # type: ignore[attr-defined]
    distances = np.linalg.norm(queries[:, None] - documents, axis=2)
    ranked = euclidean.system(task).rank(10)
    for row, of_query in zip(ranked, distances, strict=True):
        np.testing.assert_allclose(of_query[row.documents], np.sort(of_query)[:10], atol=1e-5)
    assert evaluate_split(euclidean, "test").means == task.measure(task.rank(euclidean.system(task), 100)).means
    (scores,) = euclidean.scores([(task.queries[0], task.pool[:20])])
    np.testing.assert_array_equal(np.argsort(-scores, kind="stable"), np.argsort(distances[0, :20], kind="stable"))
    texts = mining_texts(opened, "train")
    found = euclidean.system(texts).rank(30)
    mined = mine(texts, Relevant.of_groups(opened, opened.groups("train")), found, None)
    assert sum(len(negatives.documents) for negatives in mined.negatives.values()) > 100
    monkeypatch.setitem(registry.RANKERS._values, "dense", type(euclidean))
    systems = Systems.open(
        opened, read_systems([f"one={euclidean.loaded.checkpoint.parents[1]}", "both=fuse(bm25, one)"])
    )
    compared = compare(systems, "test").systems
    assert compared["one"].metrics["mrr@10"] == pytest.approx(evaluate_split(euclidean, "test").means["mrr@10"])
    assert compared["both"].metrics["mrr@10"] > 0


def test_models_that_do_not_search_are_refused(opened: Collection, shards: Path, tmp_path: Path) -> None:
    ranker = ranker_of(overlap_run(opened), opened)
    assert not ranker.searches
    with pytest.raises(InputError, match="run/step: a overlap cannot search: it re-ranks what another system found"):
        ranker.system(Texts(opened, [0], [0]))
    run = write_run(tmp_path / "mlm", shards / "tokenizer.json", name="mlm", max_tokens=32)
    with pytest.raises(InputError, match="a mlm pre-training run, which was not trained to compare texts: fine-tune"):
        open_ranker(run, opened)
    assert open_ranker("bm25", opened).kind == "bm25"
    assert ranker_of(tokens_run(opened), opened).temperature == 1.0
