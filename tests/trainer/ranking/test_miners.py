"""The systems that find negatives: a re-ranker scores what the first one found, and the relevant documents."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.trainer.ranking.miners import Miners
from deepsiam.trainer.ranking.mining import mine, mining_texts
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def run(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, keys = tmp_path_factory.mktemp("runs") / "cross", {"loss": "binary", **LENGTHS}
    return write_run(folder, toy_collection / "tokenizer.json", name="cross_encoder", noise=0.5, **keys)


def test_a_re_ranker_orders_what_was_found_and_the_relevant_documents(toy_collection: Path, run: Path) -> None:
    collection = Collection.open(toy_collection)
    texts, relevant = mining_texts(collection, "train"), Relevant.of_groups(collection, collection.groups("train"))
    miners = Miners.open(["bm25", f"bm25 > 7 {run}"], collection, "train", None)
    assert miners.names[0] == "bm25"
    assert miners.names[1].startswith(f"bm25 > 7 {run}/checkpoints/")
    found = miners.rank(0, texts, relevant, 7)
    ranked = miners.rank(1, texts, relevant, 100)
    scorer = open_ranker(run, collection)
    added = 0
    for query, first, last in zip(texts.queries, found, ranked, strict=True):
        known = relevant.of(query).tolist()
        documents = {texts.pool[i] for i in first.documents.tolist()} | set(known)
        added += not set(known) <= {texts.pool[i] for i in first.documents.tolist()}
        assert sorted(texts.pool[i] for i in last.documents.tolist()) == sorted(documents)
        order = [texts.pool[i] for i in last.documents.tolist()]
        (scores,) = scorer.scores([(query, order)])
        np.testing.assert_allclose(last.scores, scores, rtol=3e-4, atol=1e-6)  # rounded to 12 bits
        assert (np.diff(last.scores) <= 0).all()
    assert added
    for short, whole in zip(miners.rank(1, texts, relevant, 3), ranked, strict=True):
        np.testing.assert_array_equal(short.documents, whole.documents[:3])

    nested = Miners.open([f"bm25 > 3 {run} > 100 {run}"], collection, "train", None)
    assert nested.depth(0, texts, 100) == 3

    mined = mine(texts, relevant, ranked, 0.0)  # leaves out what the re-ranker scores above the relevant document
    for query, last in zip(texts.queries, ranked, strict=True):
        documents = np.array([texts.pool[i] for i in last.documents.tolist()])
        best = last.scores[np.isin(documents, relevant.of(query))].max()
        assert (mined.negatives[query].scores <= best).all()
    assert 0 < sum(len(negatives.documents) for negatives in mined.negatives.values()) < sum(map(len, found)) * 7
