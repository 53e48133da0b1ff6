"""Labelled groups as examples: disjoint splits, small label sets as subsets of larger ones, units for the lanes."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import NewCandidates, derive
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.candidates import Example
from deepsiam.trainer.training.data import group_source, shuffled
from deepsiam.trainer.training.data.check_groups import check_classes, check_relevance, check_teacher
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.open_pairs import pair_data
from tests import toy
from tests.trainer.training.data.small_collections import built, recipe


@pytest.fixture
def collection(toy_collection: Path) -> Collection:
    """100 pairs for training and 20 for test, one document each."""
    return Collection.open(toy_collection)


def opened(
    collection: Collection, kind: Any = "positive", limit: int | None = None, seed: int = 1, unit: int = 9, **more: Any
) -> GroupSource:
    """The train split."""
    return GroupSource(collection, "train", kind, limit, seed, unit=unit, **more)


def examples(source: GroupSource) -> list[Example]:
    """All examples, in order."""
    return [example for shard in range(len(source.chunks)) for example in source.read(shard, 0)]


def first_documents(source: GroupSource) -> list[int]:
    return [int(example.candidates[0]) for example in examples(source)]


def test_pairs_and_negatives_are_of_the_split_alone(collection: Collection) -> None:
    train, test = (GroupSource(collection, split, "positive", None, seed=1, unit=32) for split in ("train", "test"))
    assert (len(train), len(test)) == (100, 20)
    assert not set(train.candidates) & set(test.candidates)
    assert set(first_documents(train)) == set(train.candidates.tolist())
    for example in examples(train):
        assert example.candidates[0] in example.relevant


@pytest.mark.parametrize("most_stored", [10, 1000])
def test_fewer_labels_are_part_of_more_also_of_a_set_too_large_for_an_array(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, most_stored: int
) -> None:
    monkeypatch.setattr(shuffled, "MOST_STORED", most_stored)
    whole, few = opened(collection), opened(collection, limit=40)
    documents = first_documents(whole)
    assert sorted(documents) == sorted(whole.candidates.tolist()) != documents
    assert first_documents(few) == documents[:40]
    assert len(few.used) == 40
    assert list(few.candidates) == list(whole.candidates)
    assert set(first_documents(opened(collection, limit=40, seed=2))) != set(documents[:40])


@pytest.mark.parametrize(
    ("unit", "least_units", "sizes"),
    [(32, 1, [32, 32, 32, 4]), (32, 30, [3] * 33 + [1]), (32, 1000, [1] * 100), (200, 1, [100])],  # never empty
)
def test_units_hold_every_pair_once_in_order_and_are_as_many_as_asked(
    collection: Collection, unit: int, least_units: int, sizes: list[int]
) -> None:
    source = opened(collection, unit=unit, least_units=least_units)
    units = [source.read(shard, 0) for shard in range(len(source.chunks))]
    assert [len(pairs) for pairs in units] == sizes
    assert first_documents(source) == first_documents(opened(collection, unit=100))
    assert set(source.chunks) == {1}
    for shard, pairs in enumerate(units):
        for item, pair in enumerate(pairs):
            document = collection.corpus.ids[int(pair.candidates[0])]
            assert source.name(shard, 0, item) == f"query q{document[1:]}, document {document}"


def shown(collection: Collection, example: Example) -> tuple[str, list[str], list[float]]:
    """The texts of an example's query and candidates, and their labels."""
    queries = collection.queries
    by_tokens = {queries.tokens(i).tobytes(): queries.text(i) for i in range(len(queries))}
    texts = [collection.corpus.text(int(i)) for i in example.candidates]
    return by_tokens[example.query.tobytes()], texts, example.labels.tolist()


def test_each_unit_of_examples_has_its_candidates(judged: Collection) -> None:
    assert opened(judged).given_negatives().tolist() == [2, 2]
    assert {judged.corpus.text(int(i)) for i in opened(judged).candidates} == {"a", "b", "c"}

    def all_of(kind: str) -> list[tuple[str, list[str], list[float]]]:
        found = [shown(judged, example) for example in examples(opened(judged, kind))]
        return sorted((query, [texts[0], *sorted(texts[1:])], labels) for query, texts, labels in found)

    assert all_of("positive") == [
        ("one", ["a", "c", "d"], [1, 0, 0]),
        ("one", ["b", "c", "d"], [1, 0, 0]),
        ("two two two two", ["c", "a", "e"], [1, 0, 0]),
    ]
    assert [(query, labels) for query, _, labels in all_of("group")] == [
        ("one", [1, 1, 0, 0]),
        ("two two two two", [1, 0, 0]),
    ]
    assert all_of("pair") == sorted(
        [("one", [text], [label]) for text, label in zip("abcd", [1, 1, 0, 0], strict=True)]
        + [("two two two two", [text], [label]) for text, label in zip("cae", [1, 0, 0], strict=True)]
    )


@pytest.fixture
def judged(shards: Path, tmp_path: Path) -> Collection:
    """Two queries with given negatives; "c" is relevant to one of them and negative for the other."""
    one, two = {"query": "one", "pos": ["a", "b"], "neg": ["c", "d"]}, {"query": "two two two two", "pos": ["c"]}
    return built(tmp_path, shards, [one, {**two, "neg": ["a", "e"]}])


@pytest.fixture
def repeated(shards: Path, tmp_path: Path) -> Collection:
    """Two ids of one query: what is relevant to one is a given negative of the other. A query is a document, too."""
    corpus = {"d0": "abcd ab", "d1": "bcd ab", "d2": "cd ab", "q2": "hij hi"}
    queries = {"q0": "dab ab", "q1": "  dab  ab", "q2": "hij hi"}
    rows = ["q0\td0\t1", "q0\td1\t0", "q0\td2\t0", "q1\td1\t1", "q2\td0\t1", "q2\td2\t1"]
    toy.write_beir(tmp_path, corpus, queries, train="\n".join(rows))
    main(["collection", str(tmp_path), "--tokenizer", str(shards / "tokenizer.json")])
    return Collection.open(tmp_path)


def test_what_is_relevant_to_a_text_is_no_negative_of_another_query_with_it(
    repeated: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(repeated)
    ids = repeated.corpus.ids
    found = {
        (source.name(0, 0, i).split()[1], ids[int(e.candidates[0])]): (
            [ids[int(d)] for d in e.candidates[1:]],
            [ids[int(d)] for d in e.relevant],
        )
        for i, e in enumerate(source.read(0, 0))
    }
    assert found == {
        ("q0,", "d0"): (["d2"], ["d0", "d1"]),
        ("q1,", "d1"): ([], ["d0", "d1"]),
        ("q2,", "d0"): ([], ["d0", "d2", "q2"]),
        ("q2,", "d2"): ([], ["d0", "d2", "q2"]),
    }
    for at_once in (1, 2, 1 << 20):
        monkeypatch.setattr(group_source, "AT_ONCE", at_once)
        given = zip(map(source.query_of, source.used.tolist()), source.given_negatives().tolist(), strict=True)
        assert dict(given) == {"q0": 1, "q1": 0, "q2": 0}
    assert source.negatives == 1
    pairs = opened(repeated, "pair")
    labels = {pairs.name(0, 0, i): float(e.labels[0]) for i, e in enumerate(pairs.read(0, 0))}
    assert {name for name, label in labels.items() if label <= 0} == {"query q0, document d2"}
    assert len(pairs) == 5


@pytest.mark.parametrize(("lanes", "window", "unit"), [(2, 1, 32), (4, 5, 5), (100, 16, 1)])
def test_every_lane_gets_a_window_of_units_and_the_run_reads_every_pair(
    toy_collection: Path, tmp_path: Path, lanes: int, window: int, unit: int
) -> None:
    order = pair_data(recipe(tmp_path / "run.yaml", toy_collection, lanes, window)).order
    source = order.sources[""].source
    assert source.unit == unit
    assert len(source.chunks) >= min(100, lanes * window)
    micro_batches = islice(order.stream(order.start(), 0, 1), max(40, lanes))
    names = {name for batch in micro_batches for example in order.origins(batch) for name in example}
    read = [(shard, item) for shard in range(len(source.chunks)) for item in range(len(source.read(shard, 0)))]
    assert names == {source.name(shard, 0, item) for shard, item in read}


def test_a_held_out_micro_batch_has_batch_micro_pairs_and_their_documents(toy_collection: Path, tmp_path: Path) -> None:
    (held_out,) = pair_data(recipe(tmp_path / "run.yaml", toy_collection, lanes=4, window=16)).held_out
    batches = list(held_out.micro_batches(0, 1))
    for name in ("query_ids", "document_ids"):
        assert [len(batch.arrays[name]) for batch in batches] == [8, 8, 4]


def labels_as_scores(source: Collection, folder: Path) -> Collection:
    """The collection that mining made before it kept scores: the scores are the labels."""
    groups = source.groups("train")
    none = np.zeros(len(groups.labels), np.uint8), np.full(len(groups.labels), np.nan, np.float32)
    given = np.asarray(groups.queries), np.asarray(groups.candidates.ends), np.asarray(groups.candidates.flat)
    old = NewCandidates(*given, groups.taught, *none)
    return derive(source, folder, "train", old, {}, [])


def scores_by_document(example: Example) -> dict[int, float]:
    assert example.scores is not None
    return dict(zip(example.candidates.tolist(), example.scores.tolist(), strict=True))


def test_a_group_has_its_scores_beside_its_labels_and_older_collections_the_labels(
    toy_scored: Path, tmp_path: Path
) -> None:
    new, old = Collection.open(toy_scored), labels_as_scores(Collection.open(toy_scored), tmp_path / "old")
    of_new, of_old = opened(new, "group"), opened(old, "group")
    for source in (of_new, of_old):
        check_teacher(source, "kl")
        check_relevance(source, "kl", any_label=True)
    check_relevance(of_new, "softmax")
    line = r"=softmax: .*old/splits/train: its labels are not whole numbers \(500 of 500, from .*\), so not relevance"
    with pytest.raises(InputError, match=line):
        check_relevance(of_old, "softmax")
    for example, older in zip(examples(of_new), examples(of_old), strict=True):
        assert example.scores is not None
        assert older.scores is not None
        assert older.scores.tolist() == older.labels.tolist() == sorted(older.labels.tolist(), reverse=True)
        assert example.labels.tolist() == [1, 0, 0, 0, 0]  # the relevant one first, then the teacher's best
        assert example.scores[1:].tolist() == sorted(example.scores[1:].tolist(), reverse=True)
        assert scores_by_document(example) == scores_by_document(older)
    for example, other in zip(examples(opened(new)), examples(of_new), strict=True):
        assert example.labels.tolist() == [1, 0, 0, 0, 0]
        assert scores_by_document(example) == scores_by_document(other)
    with pytest.raises(InputError, match="=kl learns a teacher's scores, but split train has none beside its labels"):
        check_teacher(opened(old), "kl")


def test_a_candidate_without_a_score_is_refused_where_one_is_learnt(toy_scored: Path, tmp_path: Path) -> None:
    scored = Collection.open(toy_scored)
    groups = scored.groups("train")
    assert groups.scores is not None
    scores = np.where(np.isin(np.arange(500), (7, 499)), np.float32(np.nan), groups.scores)
    ends, documents = np.asarray(groups.candidates.ends), np.asarray(groups.candidates.flat)
    given = np.asarray(groups.queries), ends, documents, groups.labels
    kept = NewCandidates(*given, groups.found_by, groups.found_scores, scores)  # type: ignore[arg-type]
    made = derive(scored, tmp_path / "out", "train", kept, {}, [])
    query = scored.queries.ids[groups[1].query]
    for kind in ("positive", "group"):
        with pytest.raises(InputError, match=rf"=kl .* 2 of 500 candidates of .* \(the first: query {query}\): have a"):
            check_teacher(opened(made, kind), "kl")


CHECKS = [  # of which collection, the unit, the check and its argument, and what is said
    ("judged", "pair", check_classes, 1, r"has the label 1 \(query .*\): labels must be whole numbers from 0 to 0"),
    ("toy_collection", "pair", check_classes, 2, "loss=classes: every pair of split train has the label 1, so there"),
    ("toy_classes", "positive", check_relevance, "softmax", "method.loss=softmax: .*its labels are classes, not rele"),
    ("toy_collection", "pair", check_relevance, "binary", "method.loss=binary: every pair of split train is relevant"),
    ("judged", "group", check_teacher, "kl", "=kl learns a teacher's scores, but all labels of split train are"),
    ("toy_collection", "group", check_teacher, "margin_mse", "but split train gives query q[0-9]+ one only"),
    ("judged", "pair", check_classes, 2, ""),
    ("judged", "pair", check_relevance, "binary", ""),
    ("toy_collection", "positive", check_relevance, "binary", ""),
]


@pytest.mark.parametrize(("of", "unit", "check", "argument", "message"), CHECKS)
def test_labels_that_a_loss_cannot_learn_are_refused(
    request: pytest.FixtureRequest, of: str, unit: Any, check: Callable[..., None], argument: Any, message: str
) -> None:
    known = request.getfixturevalue(of)
    source = opened(known if isinstance(known, Collection) else Collection.open(known), unit)
    if not message:
        check(source, argument)
        return
    with pytest.raises(InputError, match=message):
        check(source, argument)
