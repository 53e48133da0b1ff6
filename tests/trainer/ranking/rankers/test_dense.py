"""A model of one vector per text ranks by the first numbers of its vectors, also in an index and an evaluation."""

import json
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.rankers.dense import DenseRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests.trainer.runs import write_run

METHOD = {"name": "siamese", "pooling": "mean", "max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    keys = {"cosine": {"similarity": "cosine", "dimensions": [32, 8]}, "dot": {"dimensions": [20, 8]}, "plain": {}}
    return {name: write_run(folder / name, tokenizer, **METHOD, **more) for name, more in keys.items()}


def ranker(run: Path, collection: Collection) -> DenseRanker:
    opened = open_ranker(run, collection)
    assert isinstance(opened, DenseRanker)
    return opened


@pytest.mark.parametrize(("name", "width"), [("cosine", 32), ("dot", 20), ("plain", 32)])
def test_vectors_are_cut_and_scaled_for_cosine(
    runs: dict[str, Path], opened: Collection, name: str, width: int
) -> None:
    texts = Texts(opened, [0, 1, 2], list(range(40)))
    whole = ranker(runs[name], opened)
    assert (whole.width, whole.note) == (width, None)
    cut = whole.cut(8)
    for own, all_numbers in zip(
        (cut.system(texts).queries, cut.system(texts).documents),
        (whole.system(texts).queries, whole.system(texts).documents),
        strict=True,
    ):
        first = all_numbers[:, :8]
        expected = first / np.linalg.norm(first, axis=1, keepdims=True) if name == "cosine" else first
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
    assert cut.model is whole.model
    assert (cut.width, whole.width) == (8, width)
    assert cut.identity == whole.identity


def test_a_number_that_was_not_trained_is_told(runs: dict[str, Path], opened: Collection) -> None:
    trained = ranker(runs["cosine"], opened)
    assert trained.cut(8).note is trained.cut(32).note is None
    assert "was trained for 32, 8 dimensions, not for its first 9" in str(trained.cut(9).note)
    assert "was trained for 32 dimensions, not for its first 8" in str(ranker(runs["plain"], opened).cut(8).note)


def test_more_than_there_are_and_other_models_are_refused(runs: dict[str, Path], opened: Collection) -> None:
    with pytest.raises(InputError, match="has vectors of 32 dimensions, and cannot cut them to 33"):
        ranker(runs["cosine"], opened).cut(33)
    with pytest.raises(InputError, match="is not a model of one vector per text, which can be cut to 8 dimensions"):
        open_ranker("bm25", opened).cut(8)
    for options, said in (
        ({"dimensions": "33"}, "cut them to 33"),
        ({"dimensions": "8x"}, "'8x'"),
        ({"pairs": "1"}, "'pairs'"),
    ):
        with pytest.raises(ValueError, match=said):
            ranker(runs["cosine"], opened).with_options(options)


def test_systems_of_several_sizes_are_compared(
    runs: dict[str, Path], opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["--system=bm25", f"--system=a={runs['cosine']}", f"--system=b={runs['cosine']}(dimensions=32)"]
    systems += [f"--system=c=bm25 > 5 {runs['cosine']}", f"--system=d={runs['cosine']}(dimensions=2)"]
    out = tmp_path / "results.json"

    def measured(*more: str) -> dict[str, dict[str, object]]:
        evaluate.main([f"--collection={opened.directory}", "--split=test", f"--out={out}", *systems, *more])
        results: dict[str, dict[str, object]] = json.loads(out.read_text())["systems"]
        return results

    whole = measured()
    assert whole["a"]["metrics"] == whole["b"]["metrics"]
    capsys.readouterr()
    cut = measured("--dimensions=2")
    assert capsys.readouterr().out.count("not for its first 2") == 1
    assert cut["bm25"] | {"stages": 0} == whole["bm25"] | {"stages": 0}
    assert cut["b"]["metrics"] == whole["b"]["metrics"] != cut["a"]["metrics"]
    assert cut["a"]["expression"] == f"{runs['cosine']}(dimensions=2)"
    assert cut["c"]["expression"] == f"bm25 > 5 {runs['cosine']}(dimensions=2)"
    assert cut["a"]["metrics"] == whole["d"]["metrics"]
