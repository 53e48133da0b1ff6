from collections.abc import Sequence
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.training.data.small_collections import built, recipe


def test_more_given_negatives_than_a_query_has_are_refused(judged: Collection, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    recipe(path, judged.directory, lanes=1, window=1)
    asked = ["method.hard_negatives=3", "validation=null"]
    words = "method.hard_negatives: 3, but split train gives query .* only 2: set 2 or less"
    with pytest.raises(InputError, match=words):
        pair_data(load(FinetuneRecipe, path, asked))


def test_a_query_that_all_documents_are_relevant_to_has_no_negatives(shards: Path, tmp_path: Path) -> None:
    path, opened = tmp_path / "run.yaml", built(tmp_path, shards, [{"query": "one", "pos": ["a", "b"], "neg": []}])
    recipe(path, opened.directory, lanes=1, window=1)
    words = "method.negatives: all documents of split train are relevant to one of its queries, which is left without"
    with pytest.raises(InputError, match=words):
        pair_data(load(FinetuneRecipe, path, ["validation=null"]))


def test_groups_with_fewer_given_negatives_get_others_at_random(shards: Path, tmp_path: Path) -> None:
    lines = [
        {"query": "one", "pos": ["a", "b"], "neg": ["d", "e"]},
        {"query": "two two", "pos": ["c"], "neg": ["a", "d", "e"]},
        {"query": "three three three", "pos": ["d"], "neg": []},
    ]
    path, opened = tmp_path / "run.yaml", built(tmp_path, shards, lines)
    recipe(path, opened.directory, lanes=1, window=1)
    data = pair_data(load(FinetuneRecipe, path, ["method.hard_negatives=2", "validation=null"]))
    assert data.remarks == [
        "split train: 1 of 3 groups give fewer than method.hard_negatives=2: the others are drawn at random"
    ]
    arrays = next(data.order.stream(data.order.start(), 0, 1)).micro_batch.arrays
    assert (arrays["candidates"] >= 0).all()
    assert arrays["candidates"].shape == (8, 3)
    with pytest.raises(InputError, match="method.hard_negatives: 4, but split train gives query .* only 3: set 3 or"):
        pair_data(load(FinetuneRecipe, path, ["method.hard_negatives=4", "validation=null"]))
    words = "method.hard_negatives: 3, but split train gives query .* only 0: mine some"  # of the other query: a, b, c
    with pytest.raises(InputError, match=words):
        pair_data(load(FinetuneRecipe, path, ["method.hard_negatives=3", "validation=null"]))


def test_queries_of_stop_words_alone_are_counted(shards: Path, tmp_path: Path) -> None:
    lines = [{"query": query, "pos": [query], "neg": ["d e f"]} for query in ("a", "cab", "a a")]
    path, opened = tmp_path / "run.yaml", built(tmp_path, shards, lines)
    recipe(path, opened.directory, lanes=1, window=1)
    sparse = ["method={name: sparse, query: tokens}", "validation=null"]
    (remark,) = pair_data(load(FinetuneRecipe, path, sparse)).remarks
    assert remark.startswith("split train: 2 of 3 queries are stop words alone, such as ")
    assert pair_data(load(FinetuneRecipe, path, [sparse[0].replace("tokens", "encoder"), sparse[1]])).remarks == []
    (tmp_path / "empty").mkdir()
    empty = built(tmp_path / "empty", shards, [line for line in lines if line["query"] != "cab"])
    recipe(path, empty.directory, lanes=1, window=1)
    with pytest.raises(InputError, match="method.query=tokens: the queries of split train are stop words alone"):
        pair_data(load(FinetuneRecipe, path, sparse))


def test_copies_of_relevant_documents_are_no_negatives(shards: Path, tmp_path: Path) -> None:
    texts = ["the same text"] * 4 + ["another text", "a third one"]
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(len(texts)))
    corpus = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": f"query {i}" for i in range(len(texts))}
    toy.write_beir(tmp_path / "c", corpus, queries, train=rows)
    main(["collection", str(tmp_path / "c"), "--tokenizer", str(shards / "tokenizer.json")])
    path = tmp_path / "run.yaml"
    recipe(path, tmp_path / "c", lanes=1, window=1)
    pair_data(load(FinetuneRecipe, path, ["method.negatives_per_query=2", "validation=null"]))
    words = "negatives_per_query .* 3, but split train has only 2 documents with another text .* query q[0-3]: set 2 or"
    with pytest.raises(InputError, match=words):
        pair_data(load(FinetuneRecipe, path, ["method.negatives_per_query=3", "validation=null"]))


def test_more_candidates_than_any_group_has_are_refused_and_groups_with_fewer_are_told(
    toy_scored: Path, judged: Collection, tmp_path: Path
) -> None:
    def asked(collection: Path, *changes: str) -> Sequence[str]:
        data = {"collection": str(collection), "lanes": 1, "window": 1}
        path = toy.finetune_recipe(tmp_path / "run.yaml", collection, init_from="none", data=data)
        table = ["method.loss={softmax: 1, kl: 0.5}", "batch={size: 2, micro: 2}"]
        return pair_data(load(FinetuneRecipe, path, [*table, *changes])).remarks

    assert asked(toy_scored, "method.candidates.per_query=5") == []
    words = "^method.candidates.per_query: 6, but split train gives no query more than 5 candidates: set 5 or less$"
    for loss in ("kl", "{hinge: 1, margin_mse: 1}"):
        with pytest.raises(InputError, match=words):
            asked(toy_scored, "method.candidates.per_query=6", f"method.loss={loss}")
    lines = [
        {"query": "one", "pos": ["a"], "neg": ["c", "d"], "pos_scores": [3], "neg_scores": [1, 2]},
        {"query": "two", "pos": ["c"], "neg": ["a"], "pos_scores": [3], "neg_scores": [1]},
    ]
    (tmp_path / "ragged").mkdir()
    folder = built(tmp_path / "ragged", judged.directory, lines).directory
    few = "1 of 2 groups give fewer than method.candidates.per_query=3: all of theirs are used"
    assert asked(folder, "method.candidates.per_query=3") == [f"split train: {few}"]
