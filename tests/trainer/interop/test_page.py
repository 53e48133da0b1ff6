"""The code of docs/search.md, run as written, against the run's own embeddings, scores and weights."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import index
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests import toy
from tests.trainer.interop.published_folders import own_embeddings
from tests.trainer.runs import write_run

ANSERINI, VECTORS, RUN, SCORES, FROM_RUN = re.findall(
    r"```python\n(.*?)```", (toy.ROOT / "docs" / "search.md").read_text(), re.DOTALL
)
TEXTS = ["abc de fghij", "", "a [MASK] and a [SEP] that are text", "unknown ☃ 漢字", " ".join(["long"] * 100)]
SIZES: dict[str, Any] = {"max_query_tokens": 24, "max_document_tokens": 24}
# the time to make a graph is that of its operations
SIZES["trunk"] = {**toy.TRUNK, "num_hidden_layers": 1}


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def exported(collection: Path, **method: Any) -> TrainedModel:
    """The run runs/mine, exported to exported/mine."""
    trained = load_trained(write_run(Path("runs/mine"), collection / "tokenizer.json", **method, **SIZES))
    export_encoder(trained, Path("exported/mine"))
    return trained


def computed(code: str, **arrays: np.ndarray) -> np.ndarray:
    """Run the code, which writes a graph; return what that makes of the arrays."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the packages of the extra `onnx`")
    exec(code, {})
    (graph,) = Path.cwd().glob("*.onnx")
    return np.asarray(onnxruntime.InferenceSession(graph).run(None, arrays)[0])


@pytest.mark.slow
def test_the_graph_of_a_sentence_transformer(toy_collection: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the packages of the extra `onnx`")
    trained = exported(toy_collection, name="siamese", pooling="mean", similarity="cosine")
    exec(VECTORS, {})
    variables: dict[str, Any] = {}
    exec(RUN.replace('["a document", "another"]', repr(TEXTS)), variables)
    own = own_embeddings(trained, TEXTS)
    np.testing.assert_allclose(variables["embeddings"], own, atol=1e-5)
    assert np.ptp(own, axis=0).max() > 0.1


@pytest.mark.slow
@pytest.mark.skipif(not toy.FULL_TESTS, reason="FULL_TESTS=1 makes this graph, too, of a class of transformers")
def test_the_graph_of_a_cross_encoder(toy_collection: Path) -> None:
    trained = exported(toy_collection, name="cross_encoder", loss="classes", classes=3)
    texts = trained.tokenizer.encode(TEXTS)
    arrays = trained.method.pair_framing(trained.tokenizer).arrays(texts, texts[::-1])  # type: ignore[attr-defined]
    with torch.no_grad():
        own = trained.model.score_pairs(**{name: torch.from_numpy(array) for name, array in arrays.items()})  # type: ignore[operator]
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: array.astype(np.int64) for name, array in zip(names, arrays.values(), strict=True)}
    np.testing.assert_allclose(computed(SCORES, **given), own, atol=1e-5)


@pytest.mark.slow
def test_the_graph_of_a_network_that_no_library_computes(toy_collection: Path) -> None:
    method: dict[str, Any] = {"name": "siamese", "special_tokens": 3, "projection": 8, "towers": 2}
    trained = load_trained(write_run(Path("runs/mine"), toy_collection / "tokenizer.json", **method, **SIZES))
    ids, mask = trained.method.document_framing(trained.tokenizer).arrays(trained.tokenizer.encode(TEXTS)).values()  # type: ignore[attr-defined]
    own = own_embeddings(trained, TEXTS)
    given = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)}
    np.testing.assert_allclose(computed(FROM_RUN, **given), own, atol=1e-5)


def test_the_lines_for_anserini_have_the_documents_and_their_weights(toy_collection: Path) -> None:
    write_run(Path("runs/mine"), toy_collection / "tokenizer.json", name="sparse", **SIZES)
    index.main(["runs/mine", f"--collection={toy_collection}", "--out=indexes/mine"])
    exec(ANSERINI, {})
    lines = list(map(json.loads, Path("mine.jsonl").read_text().splitlines()))
    collection = Collection.open(toy_collection)
    vocabulary, ranker = collection.tokenizer.vocabulary(), open_ranker(Path("runs/mine"), collection)
    assert isinstance(ranker, SparseRanker)
    encoded = ranker.documents.vectors(map(collection.corpus.tokens, range(len(lines))))
    assert sorted(line["id"] for line in lines) == sorted(collection.corpus.ids)
    for line in lines:
        (document,) = collection.corpus.ids.find([line["id"]]).tolist()
        assert line["contents"] == collection.corpus.text(document)
        own = {int(term): float(weight) for term, weight in encoded.of(encoded.rows[document])}
        assert {vocabulary[term] for term in line["vector"]} == own.keys()
        for term, weight in line["vector"].items():
            assert type(weight) is int
            assert weight == pytest.approx(100 * own[vocabulary[term]], abs=0.5 + 0.05 * own[vocabulary[term]])
