"""Pairs that a recipe cannot use are refused, or told; a few pairs are enough for the small recipes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.opened import Data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.training.data.small_collections import built, recipe

JUDGED = [{"query": "one", "pos": ["a", "b"], "neg": ["c", "d"]}, {"query": "two two", "pos": ["c"], "neg": ["a", "e"]}]
RAGGED = [
    {"query": "one", "pos": ["a", "b"], "neg": ["d", "e"]},
    {"query": "two two", "pos": ["c"], "neg": ["a", "d", "e"]},
    {"query": "three three three", "pos": ["d"], "neg": []},
]
STOP_WORDS = [{"query": query, "pos": [query], "neg": ["d e f"]} for query in ("a", "a a")]
SCORED = [
    {"query": "one", "pos": ["a"], "neg": ["c", "d"], "pos_scores": [3], "neg_scores": [1, 2]},
    {"query": "two", "pos": ["c"], "neg": ["a"], "pos_scores": [3], "neg_scores": [1]},
]
SPARSE, TAUGHT = "method={{name: sparse, query: {}}}".format, "method.loss={softmax: 1, kl: 0.5}"


def asked(folder: Path, collection: Path, *changes: str) -> Data:
    """Open a collection for a recipe with changes."""
    recipe(folder / "run.yaml", collection, lanes=1, window=1)
    return pair_data(load(FinetuneRecipe, folder / "run.yaml", ["validation=null", *changes]))


@pytest.mark.parametrize(
    ("lines", "change", "words"),
    [
        (JUDGED, "hard_negatives=3", "hard_negatives: 3, but split train gives query .* only 2: set 2 or less"),
        (
            [{"query": "one", "pos": ["a", "b"], "neg": []}],
            "negatives_per_query=0",
            "negatives: all documents of split train are relevant to one of its queries, which is left without",
        ),
        (RAGGED, "hard_negatives=4", "hard_negatives: 4, but split train gives query .* only 3: set 3 or"),
        # of the other query: a, b, c
        (RAGGED, "hard_negatives=3", "hard_negatives: 3, but split train gives query .* only 0: mine some"),
    ],
)
def test_groups_without_the_negatives_that_are_asked_for_are_refused(
    shards: Path, tmp_path: Path, lines: list[dict[str, Any]], change: str, words: str
) -> None:
    folder = built(tmp_path, shards, lines).directory
    with pytest.raises(InputError, match=f"^method.{words}"):
        asked(tmp_path, folder, f"method.{change}")


def test_groups_with_fewer_given_negatives_get_others_at_random(shards: Path, tmp_path: Path) -> None:
    data = asked(tmp_path, built(tmp_path, shards, RAGGED).directory, "method.hard_negatives=2")
    assert data.remarks == [
        "split train: 1 of 3 groups give fewer than method.hard_negatives=2: the others are drawn at random"
    ]
    arrays = next(data.order.stream(data.order.start(), 0, 1)).micro_batch.arrays
    assert (arrays["candidates"] >= 0).all()
    assert arrays["candidates"].shape == (8, 3)


def test_queries_of_stop_words_alone_are_counted(shards: Path, tmp_path: Path) -> None:
    folder = built(tmp_path, shards, [*STOP_WORDS, {"query": "cab", "pos": ["cab"], "neg": ["d e f"]}]).directory
    (remark,) = asked(tmp_path, folder, SPARSE("tokens")).remarks
    assert remark.startswith("split train: 2 of 3 queries are stop words alone, such as ")
    assert asked(tmp_path, folder, SPARSE("encoder")).remarks == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="method.query=tokens: the queries of split train are stop words alone"):
        asked(tmp_path, built(tmp_path / "empty", shards, STOP_WORDS).directory, SPARSE("tokens"))


def test_copies_of_relevant_documents_are_no_negatives(shards: Path, tmp_path: Path) -> None:
    texts = ["the same text"] * 4 + ["another text", "a third one"]
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(len(texts)))
    corpus = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": f"query {i}" for i in range(len(texts))}
    toy.write_beir(tmp_path / "c", corpus, queries, train=rows)
    main(["collection", str(tmp_path / "c"), "--tokenizer", str(shards / "tokenizer.json")])
    asked(tmp_path, tmp_path / "c", "method.negatives_per_query=2")
    words = "negatives_per_query .* 3, but split train has only 2 documents with another text .* query q[0-3]: set 2 or"
    with pytest.raises(InputError, match=words):
        asked(tmp_path, tmp_path / "c", "method.negatives_per_query=3")


def test_more_candidates_than_any_group_has_are_refused_and_groups_with_fewer_are_told(
    toy_scored: Path, shards: Path, tmp_path: Path
) -> None:
    def remarks(collection: Path, number: int, loss: str = TAUGHT) -> Sequence[str]:
        changes = ("batch={size: 2, micro: 2}", loss, f"method.candidates.per_query={number}")
        return asked(tmp_path, collection, *changes).remarks

    assert remarks(toy_scored, 5) == []
    words = "^method.candidates.per_query: 6, but split train gives no query more than 5 candidates: set 5 or less$"
    for loss in ("kl", "{hinge: 1, margin_mse: 1}"):
        with pytest.raises(InputError, match=words):
            remarks(toy_scored, 6, f"method.loss={loss}")
    few = "1 of 2 groups give fewer than method.candidates.per_query=3: all of theirs are used"
    assert remarks(built(tmp_path, shards, SCORED).directory, 3) == [f"split train: {few}"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["validation.split=dev"], "^validation.split: .*no split 'dev'; choose .*; or set validation to null$"),
        (["data.split=dev"], "^data.split: .*no split 'dev'; choose one of: test, train$"),
        (["method.hard_negatives=1", "refresh.every=5"], "test gives query .* only 0: .*; or set validation to null"),
    ],
)
def test_a_split_that_does_not_suit_names_its_key(toy_collection: Path, changes: list[str], words: str) -> None:
    start = [f"data.collection={toy_collection}", "validation={split: test, every: 9}", *changes]
    with pytest.raises(InputError, match=words):
        pair_data(load(FinetuneRecipe, toy.ROOT / "recipes/siamese_small.yaml", start))


@pytest.mark.parametrize("name", ["siamese", "poly_encoder", "colbert", "cross_encoder", "cross_thought_answers"])
def test_the_small_recipes_train_on_a_collection_of_a_few_pairs(shards: Path, tmp_path: Path, name: str) -> None:
    folder = toy.write_collection(tmp_path / "c", shards / "tokenizer.json", count=26)  # 6 of them are to train on
    data = pair_data(load(FinetuneRecipe, toy.ROOT / f"recipes/{name}_small.yaml", [f"data.collection={folder}"]))
    assert len(next(data.order.stream(data.order.start(), 0, 1)).micro_batch.arrays["candidates"])
