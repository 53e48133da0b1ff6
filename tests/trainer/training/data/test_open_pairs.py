"""Pairs, and mixes of collections: what is refused or told; the order of a mix, and what each source has of its own."""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.jobs.trace import digest, show, trace
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.opened import Data, resume_invariants
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.job import check_job
from tests import toy
from tests.trainer.mixed_recipe import SOURCES, mixed_recipe
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


STEPS = 40


@pytest.fixture
def path(toy_collection: Path, toy_scored: Path, tmp_path: Path) -> Path:
    return mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored)


@pytest.fixture(params=["micro_batch", "step"])
def mixed(request: pytest.FixtureRequest, path: Path) -> FinetuneRecipe:
    changes = [f"data.one_source_per={request.param}", f"method.negatives={request.param}"]
    return load(FinetuneRecipe, path, changes)


def digests(mixed: FinetuneRecipe, steps: int, ranks: int = 1, workers: int = 0) -> list[str]:
    read = islice(trace(mixed, pair_data(mixed), 1, ranks, workers), steps)
    return [digest([batch.micro_batch for batch in batches]) for _, batches in read]


def test_a_step_has_the_same_examples_for_any_number_of_ranks_and_workers(mixed: FinetuneRecipe) -> None:
    alone = digests(mixed, STEPS)
    assert len(set(alone)) == STEPS
    assert digests(mixed, 6, ranks=2, workers=2) == alone[:6]
    assert digests(mixed, STEPS, ranks=4) == alone


def test_sources_are_drawn_by_weight_and_a_step_of_one_is_never_mixed(mixed: FinetuneRecipe) -> None:
    data = pair_data(mixed)
    assert data.order.names == sorted(SOURCES)
    of_steps = [Counter(batch.source for batch in step) for _, step in islice(trace(mixed, data, 1, 2, 0), STEPS)]
    total = sum(of_steps, Counter())
    assert total == {0: 60, 1: 60, 2: 40}
    most = 1 if mixed.data.one_source_per == "step" else 3
    assert {len(step) for step in of_steps} == {most}
    read = data.order.progress(4 * STEPS)
    assert {f"examples/{data.order.names[i]}": 2 * n for i, n in total.items()}.items() <= read.items()
    assert (read["epochs/plain"], read["epochs/prompted"]) == (120 / 100, 120 / 60)


def test_each_source_has_its_own_prompt_and_losses(mixed: FinetuneRecipe) -> None:
    data, seen = pair_data(mixed), set[str]()
    for step, batches in islice(trace(mixed, data, 1, 1, 0), 10):
        for batch in batches:
            name = data.order.names[batch.source]
            lines = list(show(step, [batch], data))
            queries = lines[lines.index("  query_ids") + 1 : lines.index("  document_ids")]
            prompt = data.tokenizer.decode(np.array(data.tokenizer.prompt("abc de").ids))
            assert all((f": [CLS] {prompt}" in line) == (name == "prompted") for line in queries)
            assert batch.micro_batch.counts == ({"kl": 2, "margin_mse": 2} if name == "taught" else {"softmax": 2})
            seen.add(name)
    assert seen == set(SOURCES)


def test_the_order_of_the_names_in_the_recipe_does_not_count(path: Path) -> None:
    first = load(FinetuneRecipe, path)
    assert first.data.mix
    reversed_mix = dict(reversed(first.data.mix.items()))
    second = first.model_copy(update={"data": first.data.model_copy(update={"mix": reversed_mix})})
    assert digests(first, 5) == digests(second, 5)
    assert resume_invariants(first, pair_data(first)) == resume_invariants(second, pair_data(second))


def test_a_single_collection_is_known_by_the_same_keys_as_before(toy_collection: Path, tmp_path: Path) -> None:
    single = load(FinetuneRecipe, toy.finetune_recipe(tmp_path / "run.yaml", toy_collection, trunk=toy.TRUNK))
    keys = ["lanes", "window", "collection", "split", "pairs"]
    assert list(resume_invariants(single, pair_data(single))["data"]) == keys
    assert set(single.model_dump()["data"]) == {*keys, "workers"}


def test_a_temperature_weighs_sources_by_their_sizes(toy_collection: Path, toy_scored: Path, tmp_path: Path) -> None:
    mix = {name: {"collection": str(toy_collection), "pairs": pairs} for name, pairs in (("a", 81), ("b", 9))}
    data = {"mix": mix, "mix_temperature": 1, "lanes": 4}
    path = mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored, data=data)
    recipes = [load(FinetuneRecipe, path, [f"data.mix_temperature={value}"]) for value in (1, 2, 1e9)]
    assert [pair_data(each).order.mix.shares for each in recipes] == [[9, 1], [3, 1], [500, 500]]


def test_a_source_that_cannot_be_validated_on_is_left_out(mixed: FinetuneRecipe) -> None:
    data = pair_data(mixed)
    assert [(part.name, part.number) for part in data.held_out] == [("plain", 0), ("prompted", 1)]
    (remark,) = data.remarks
    assert remark.startswith("data.mix.taught is not validated on: data.mix.taught.loss=kl and margin_mse compares t")
    assert mixed.validation
    none = mixed.model_copy(update={"validation": mixed.validation.model_copy(update={"split": "dev"})})
    with pytest.raises(InputError, match=r"^data.mix.plain is not .* no split 'dev'; .*; or set validation to null$"):
        pair_data(none)


ROWS = [  # changes of the recipe, where "PLAIN" is that source, and what is said
    ("PLAIN.weight=0", "PLAIN.weight: input should be greater than 0, not 0"),
    ("PLAIN.weight=-1", "PLAIN.weight: input should be greater than 0, not -1"),
    ("PLAIN.weight=null", "PLAIN.weight: missing: set a weight for every source, or data.mix_temperature"),
    (
        "data.mix_temperature=2 PLAIN.weight=1",
        "PLAIN.weight: does not go with .*: set .* or data.mix_temperature and none$",
    ),
    ("PLAIN.query_promt=x", r"PLAIN.query_promt: unknown key; did you mean PLAIN.query_prompt\?$"),
    ("PLAIN.pooling=mean", "PLAIN.pooling: unknown key; a source may have collection, .*query_prompt, "),
    ("PLAIN.loss=sotfmax", "PLAIN.loss.*: Input should be 'softmax'"),
    ("PLAIN.loss=kl", "^[^:]*: PLAIN.loss=kl learns a teacher's scores .* draws no negatives"),
    (
        "PLAIN.loss=kl PLAIN.negatives_per_query=0 PLAIN.negatives=own",
        "^PLAIN.loss=kl compares .*, but split train gives query q0 one only",
    ),
    ("PLAIN.hard_negatives=1", r"^PLAIN.hard_negatives: 1, but .* gives .* at random \(PLAIN.negatives_per_query"),
    ("PLAIN.negatives_per_query=100", "^PLAIN.negatives_per_query: 100, but split train has only 99 "),
    ("PLAIN.split=dev", "^PLAIN.split: .* no split 'dev'; choose one of: test, train"),
    ("PLAIN.pairs=101", "lower PLAIN.pairs, or name another PLAIN.split"),
    ("PLAIN.split=test batch.size=24", "^PLAIN: split test has 20 examples, fewer than .*=24"),
    ("PLAIN.collection=OTHER", "was tokenised with another tokenizer than .*: run: python -m data_prep"),
    ("PLAIN.negatives=step", "PLAIN: its losses compare .* set data.one_source_per=step"),
    ("data.collection=c PLAIN.collection=d", "data: name either data.collection or, for several sources, data.mix"),
    ("data.pairs=3", "data.split and data.pairs need data.collection: set those of each source"),
    ("refresh.every=2", "PLAIN: what is mined .* PLAIN.hard_negatives to .* or PLAIN.refresh to false"),
    (
        f"refresh.every=2 {' '.join(f'data.mix.{name}.refresh=false' for name in SOURCES)}",
        "refresh: no source of data.mix is to be mined for: set refresh to null",
    ),
    ("optimizer.plateau.factor=0.5", "optimizer.plateau: the sources of data.mix have different losses"),
    (f"'PLAIN.query_prompt={'ab ' * 40}'", "PLAIN: method: query_prompt has .* tokens, which leave a text no"),
    ("deepspeed=zero3_bf16", "^data.mix: .* ZeRO stage 3 .*: set data.one_source_per=step, or deepspeed"),
]


@pytest.mark.parametrize(("typed", "words"), ROWS)
def test_a_bad_mix_is_one_line(path: Path, tmp_path: Path, typed: str, words: str) -> None:
    if "OTHER" in typed:
        tokenizer.train((text for texts in toy.documents(50, seed=5) for text in texts), 200, tmp_path / "other.json")
        typed = typed.replace("OTHER", str(toy.write_collection(tmp_path / "other", tmp_path / "other.json")))
    changes = shlex.split(typed.replace("PLAIN", "data.mix.plain"))
    with pytest.raises(InputError, match=words.replace("PLAIN", "data.mix.plain")) as caught:
        check_job(finetuning.build(load(FinetuneRecipe, path, changes)))
    assert "\n" not in str(caught.value)


def test_zero_3_goes_with_steps_of_one_source(path: Path) -> None:
    check_job(finetuning.build(load(FinetuneRecipe, path, ["deepspeed=zero3_bf16", "data.one_source_per=step"])))


def test_a_source_with_too_few_items_for_the_lanes_is_named(toy_collection: Path, tmp_path: Path) -> None:
    source = {"collection": str(toy_collection), "weight": 1}
    mix = {"many": {**source, "pairs": 40}, "few": {**source, "pairs": 10}}
    path = toy.finetune_recipe(tmp_path / "r.yaml", toy_collection, data={"mix": mix, "lanes": 16}, trunk=toy.TRUNK)
    with pytest.raises(InputError, match=r"^data.mix.few: data.lanes: 16 lanes need .*, the data has 10: set"):
        finetuning.build(load(FinetuneRecipe, path))
