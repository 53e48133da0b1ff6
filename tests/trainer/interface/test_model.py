"""A model in Python has the commands' numbers, to the bit, for every kind of ranker; and what it refuses."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deepsiam
from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import evaluate, index
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.commands.test_evaluate_models import KEYS, LENGTHS, RANK
from tests.trainer.runs import write_run

PROMPTS = {"query_prompt": "ab ", "document_prompt": "cd "}
ENCODE = [name for name in RANK if name in ("siamese", "colbert", "poly_encoder", "sparse")]
RE_RANK = [name for name in RANK if name not in ENCODE]
VARIANTS: dict[str, dict[str, Any]] = {  # runs that are not named after their method
    "cosine": {"name": "siamese", "similarity": "cosine", **PROMPTS, **LENGTHS},
    "dot": {"name": "siamese", "similarity": "dot", **LENGTHS},
    "classes": {"name": "cross_encoder", "loss": "classes", "classes": 3, **LENGTHS},
    "seed": {"name": "seed", "max_tokens": 32},
}
PathOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def collection(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The toy collection with a split of one query."""
    folder = tmp_path_factory.mktemp("collection") / "toy"
    shutil.copytree(toy_collection, folder)
    (folder / "qrels" / "one.tsv").write_text("query-id\tcorpus-id\tscore\nq7\td7\t1\n")
    return build("beir", [folder], folder, tokenizers.load(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def path_of(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> PathOf:
    """Write a run by its name, once."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def path(name: str) -> Path:
        keys = VARIANTS.get(name, {"name": name, **LENGTHS, **KEYS.get(name, {})})
        return write_run(folder / name, collection.directory / "tokenizer.json", **keys)

    return path


@pytest.fixture(scope="module")
def model(path_of: PathOf) -> deepsiam.Model:
    return deepsiam.load(path_of("cosine"))


def written_run(collection: Collection, split: str, system: str, tmp_path: Path) -> dict[str, list[tuple[str, float]]]:
    """The run file of `trainer.evaluate`: ids and scores, fp32, by the query's id."""
    out = [f"--out={tmp_path / 'r.json'}", f"--write-runs={tmp_path / 'runs'}", "--metrics", "recall@120"]
    evaluate.main([f"--collection={collection.directory}", f"--split={split}", f"--system=s={system}", *out])
    rankings: dict[str, list[tuple[str, float]]] = {}
    for line in (tmp_path / "runs" / "s.trec").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        rankings.setdefault(query, []).append((document, float(np.float32(score))))
    return rankings


def test_vectors_are_those_that_an_index_stores(model: deepsiam.Model, collection: Collection, tmp_path: Path) -> None:
    index.main([str(model.path), f"--collection={collection.directory}", f"--out={tmp_path / 'index'}"])
    stored = np.load(tmp_path / "index" / "blocks" / "000000.npy")[np.load(tmp_path / "index" / "rows.npy")]
    encoded = model.encode_document(f" {text}\n" for text in collection.corpus.texts())
    np.testing.assert_array_equal(encoded, stored)
    assert (encoded.shape, encoded.dtype) == ((120, 32), np.float32)
    trained = ranker_of(load_trained(model.path), collection)
    queries = [*collection.queries.texts()]
    asked = model.encode_query(queries)
    np.testing.assert_array_equal(asked, trained.queries.embeddings(map(collection.queries.tokens, range(120))))  # type: ignore[attr-defined]
    assert abs(asked - model.encode_document(queries)).max() > 0.01  # their prompts differ
    expected = (asked.astype(np.float64) @ stored.T.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(model.similarity(asked, encoded), expected)
    assert isinstance(tensor := model.encode_query(queries, as_tensor=True), torch.Tensor)
    np.testing.assert_array_equal(model.similarity(tensor, encoded), expected)


def test_the_first_numbers_of_a_vector(model: deepsiam.Model, collection: Collection) -> None:
    texts = [collection.corpus.text(i) for i in range(5)]
    whole = model.encode_document(texts)[:, :8]
    with pytest.warns(UserWarning, match="was trained for 32 dimensions, not for its first 8"):
        cut = model.encode_document(texts, dimensions=8)
    np.testing.assert_allclose(cut, whole / np.linalg.norm(whole, axis=1, keepdims=True), rtol=1e-5)


def test_vectors_in_fewer_bytes(model: deepsiam.Model, collection: Collection) -> None:
    texts = [collection.corpus.text(i) for i in range(9)]
    whole = model.encode_document(texts)
    half, codes, bits = (model.encode_document(texts, precision=name) for name in ("fp16", "int8", "binary"))
    assert [array.dtype for array in (half, codes, bits)] == [np.float16, np.int8, np.uint8]
    np.testing.assert_array_equal(half, whole.astype(np.float16))
    np.testing.assert_allclose(codes / 127, whole, atol=0.5 / 127 + 1e-6)
    assert bits.shape == (9, whole.shape[1] // 8)
    np.testing.assert_array_equal(np.unpackbits(bits, axis=1), whole > 0)
    assert model.encode_query("one", precision="int8", dimensions=7, as_tensor=True).shape == (7,)
    assert model.encode_query([], precision="binary", dimensions=9).shape == (0, 2)
    np.testing.assert_allclose(model.similarity(whole, half), model.similarity(whole, whole), atol=2e-3)


@pytest.mark.parametrize("name", ENCODE)
def test_no_text_one_text_and_several(name: str, collection: Collection, path_of: PathOf) -> None:
    model, asked = deepsiam.load(path_of(name)), [collection.queries.text(i) for i in (8, 9)]
    texts = [collection.corpus.text(i) for i in (3, 8, 3)]
    several, one, none = model.encode_document(texts), model.encode_document(texts[1]), model.encode_document([])
    queries = model.encode_query(asked)
    scores = model.similarity(queries, several)
    assert (scores.shape, model.similarity(queries, none).shape) == ((2, 3), (2, 0))
    np.testing.assert_allclose(model.similarity(queries, one)[:, 0], scores[:, 1], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(scores[:, 0], scores[:, 2])
    ranked = model.rank(asked, texts)
    for of_query, row in zip(ranked, scores, strict=True):
        np.testing.assert_allclose([score for _, score in of_query], [row[i] for i, _ in of_query], rtol=1e-5)
    tensors = model.encode_query(asked, as_tensor=True)
    np.testing.assert_array_equal(model.similarity(tensors, several), scores)
    if name == "siamese":
        assert (several.shape, one.shape, none.shape, none.dtype) == ((3, 32), (32,), (0, 32), np.float32)
    elif name == "sparse":
        vocabulary = collection.tokenizer.vocab_size
        assert (several.shape, one.shape, none.shape) == ((3, vocabulary), (1, vocabulary), (0, vocabulary))
        np.testing.assert_allclose(queries.toarray() @ several.toarray().T, scores, rtol=1e-5)
    else:
        assert [array.ndim for array in several] == [2, 2, 2]
        assert (one.shape, none) == (several[1].shape, [])


@pytest.mark.parametrize("name", ENCODE)
def test_a_ranking_is_that_of_the_command(name: str, collection: Collection, path_of: PathOf, tmp_path: Path) -> None:
    run, task = path_of(name), Task.of(collection, "test")
    expected = written_run(collection, "test", str(run), tmp_path)
    queries, texts = [collection.queries.text(i) for i in task.queries], [collection.corpus.text(i) for i in task.pool]
    ranked = deepsiam.load(run).rank(queries, texts)
    for found, of_command in zip(ranked, expected.values(), strict=True):
        assert [(task.name(place), score) for place, score in found] == of_command


@pytest.mark.parametrize("name", RE_RANK)
def test_a_re_ranking_is_that_of_the_command(
    name: str, collection: Collection, path_of: PathOf, tmp_path: Path
) -> None:
    run = path_of(name)
    (first,) = written_run(collection, "one", "bm25", tmp_path).values()
    (expected,) = written_run(collection, "one", f"bm25 > 10 {run}", tmp_path).values()
    ids = [document for document, _ in first[:10]]
    texts = [collection.corpus.text(collection.corpus.ids.number(document)) for document in ids]
    model = deepsiam.load(run)
    other = model.rank(collection.queries.text(50), texts[::-1])
    ranked = model.rank(collection.queries.text(7), texts)
    assert {ids[place]: score for place, score in ranked} == dict(expected[:10])
    scores = [score for _, score in ranked]
    assert scores == sorted(scores, reverse=True)
    assert [score for _, score in other] != scores or name == "label_ranker"
    assert model.rank([], texts) == model.rank([], []) == []
    assert model.rank("a", []) == []
    with pytest.raises(deepsiam.InputError, match="has no vectors to compare: use rank"):
        model.encode_query("a")


def test_equal_scores_keep_the_order_of_the_texts(model: deepsiam.Model) -> None:
    ranked = model.rank("abc", ["abd", "bcd", "abd", "bcd"])
    places = [place for place, _ in ranked]
    assert places in ([0, 2, 1, 3], [1, 3, 0, 2])


REFUSED: list[tuple[str, Callable[[deepsiam.Model], object], str]] = [
    ("cosine", lambda m: m.encode_query(["a", 3]), r"texts\[1\]: 3 is not a string"),  # type: ignore[list-item]
    ("cosine", lambda m: m.encode_query(["a", None]), r"texts\[1\]: None is not a string"),  # type: ignore[list-item]
    ("cosine", lambda m: m.encode_query(None), "texts: None is neither a text nor a list of texts"),  # type: ignore[arg-type]
    ("cosine", lambda m: m.rank("a", ["caf\udce9"]), r"texts\[0\]: 'caf\\udce9' is not UTF-8; convert it, as iconv"),
    ("cosine", lambda m: m.rank(["a", b"a"], ["b"]), r"query\[1\]: b'a' is not a string"),  # type: ignore[list-item]
    ("cosine", lambda m: m.encode_document("a", dimensions=33), "32 dimensions, and cannot cut them to 33"),
    ("cosine", lambda m: m.encode_query("a", precision="int4"), "'int4' is not one of fp32, fp16, int8, binary"),  # type: ignore[arg-type]
    ("cosine", lambda m: m.similarity(np.ones((1, 2), np.int8), np.ones((1, 2), np.int8)), "fp32 or fp16, not codes"),
    ("cosine", lambda m: deepsiam.load(m.path, precision="fp16"), "precision: 'fp16' is not one of fp32, bf16"),  # type: ignore[arg-type]
    ("cosine", lambda m: deepsiam.load(m.path / "gone"), "gone: no such folder"),
    ("cosine", lambda m: deepsiam.load(m.path.parent), "neither a checkpoint nor a run folder with one: train it"),
    ("cosine", lambda m: deepsiam.load(m.path.parent / "seed"), "was not trained to compare texts: fine-tune it first"),
    ("dot", lambda m: m.encode_query("a", precision="int8"), "int8 needs vectors of length 1, and .*dot"),
    ("colbert", lambda m: m.encode_query("a", precision="fp16"), "fp16 is for models of one vector per text"),
    ("classes", lambda m: m.rank("a", ["b"]), "predicts classes and gives no score to rank by"),
]


@pytest.mark.parametrize(("name", "call", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_is_refused(name: str, call: Callable[[deepsiam.Model], object], message: str, path_of: PathOf) -> None:
    path_of("seed")
    loaded = deepsiam.load(path_of(name))
    with pytest.raises(deepsiam.InputError, match=message):
        call(loaded)


def test_a_lower_precision_is_close(model: deepsiam.Model) -> None:
    texts = ["abc bcd", "cde"]
    rounded = deepsiam.load(model.path, precision="bf16").encode_query(texts)
    assert rounded.dtype == np.float32
    assert 0 < abs(rounded - model.encode_query(texts)).max() < 0.1
