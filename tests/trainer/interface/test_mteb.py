"""MTEB 2 evaluates a model: its scores are those of `trainer.evaluate` on the same texts."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from tests.trainer.runs import write_run

# imported by the tests alone: it takes longer than everything else that a worker collects
pytestmark = pytest.mark.skipif(not find_spec("mteb"), reason="mteb is not installed: pip install 'deepsiam[mteb]'")
KEYS: dict[str, dict[str, Any]] = {
    "siamese": {"similarity": "cosine", "query_prompt": "ab "},
    "colbert": {},
}


def retrieval_task(opened: Collection) -> Any:
    """A task of MTEB with the texts and test judgements of a collection, which needs no network."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata

    qrels = opened.qrels("test")
    corpus = [
        {"id": name, "text": text, "title": ""}
        for name, text in zip(opened.corpus.ids, opened.corpus.texts(), strict=True)
    ]
    asked = [{"id": name, "text": opened.queries.text(opened.queries.ids.number(name))} for name in qrels]

    class Toy(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Toy",
            description="Made-up texts.",
            reference="https://example.org",
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
            dataset={"path": "toy", "revision": "1"},
        )

        def load_data(self, **_: object) -> None:
            data = RetrievalSplitData(
                corpus=Dataset.from_list(corpus), queries=Dataset.from_list(asked), relevant_docs=qrels, top_ranked=None
            )
            self.dataset = {"default": {"test": data}}
            self.data_loaded = True

    return Toy()


@pytest.mark.parametrize("name", KEYS)
def test_it_measures_what_we_measure(name: str, toy_collection: Path, tmp_path: Path) -> None:
    import mteb

    keys = {"name": name, "max_query_tokens": 8, "max_document_tokens": 16, **KEYS[name]}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **keys)
    model = deepsiam.load(run)
    (result,) = mteb.evaluate(model, retrieval_task(Collection.open(toy_collection)), cache=None).task_results
    (scores,) = result.scores["test"]
    expected = deepsiam.evaluate(toy_collection, {"mine": model}).metrics["mine"]
    assert 0 < expected["ndcg@10"] < 1
    assert scores["ndcg_at_10"] == pytest.approx(expected["ndcg@10"], abs=1e-5)
    assert scores["recall_at_100"] == pytest.approx(expected["recall@100"], abs=1e-5)


def test_its_name_changes_with_its_weights(toy_collection: Path, tmp_path: Path) -> None:
    """MTEB keeps results by name and revision: those of other weights are not taken for this model's."""
    about = []
    for seed in (1, 2):
        run = write_run(tmp_path / str(seed) / "run", toy_collection / "tokenizer.json", name="siamese", seed=seed)
        about.append(deepsiam.load(run).mteb_model_meta)
    assert {(meta.name, meta.embed_dim) for meta in about} == {("deepsiam/run", 32)}
    assert len({meta.revision for meta in about}) == 2


def test_pairs_are_scored_one_by_one(toy_collection: Path, tmp_path: Path) -> None:
    from mteb.types import PromptType

    model = deepsiam.load(write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese"))
    texts = [{"text": ["abc"]}, {"text": ["bcd", "cde"]}]
    queries, documents = model.encode(texts, prompt_type=PromptType.query), model.encode(texts)
    expected = np.diag(model.similarity(queries, documents))
    np.testing.assert_array_equal(model.similarity_pairwise(queries, documents), expected)
