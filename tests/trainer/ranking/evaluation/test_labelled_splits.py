"""Splits with other labels than a ranking's: candidate lists, their ties and metrics; the accuracy of classes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import IDENTICAL_IDS
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from deepsiam.trainer.ranking.evaluation.classes import compare_classes, read_classes
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.results_file import CandidateLists, Classes, Limits
from deepsiam.trainer.ranking.evaluation.table import compared
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_overlap, systems_of, tokens_run
from tests.trainer.ranking.retrieval.small_collections import (
    CANDIDATES,
    CLASSES,
    LISTS,
    candidate_lists,
    labelled_pairs,
)
from tests.trainer.runs import write_run


@pytest.fixture(scope="module")
def lists(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return candidate_lists(tmp_path_factory.mktemp("lists") / "c", toy_collection / "tokenizer.json")


def test_lists_without_a_relevant_candidate_are_left_out(lists: Collection) -> None:
    task, groups = CandidateTask.of(lists, "test"), lists.groups("test")
    assert (len(groups), len(task.lists), task.left_out) == (LISTS, LISTS - 2, 2)
    assert len(task.queries) == LISTS - 3  # one query has two lists
    assert len(task.pool) == CANDIDATES * (LISTS - 2)
    for i, (query, positions) in enumerate(task.lists):
        assert task.queries[query] == groups[i].query
        assert [task.pool[p] for p in positions] == groups[i].candidates.tolist()
        np.testing.assert_array_equal(task.grades[i], groups[i].labels)


def test_equal_scores_rank_by_chance_although_the_right_candidate_comes_first(lists: Collection) -> None:
    task = CandidateTask.of(lists, "test")
    means = task.measure([np.zeros(len(positions), np.float32) for _, positions in task.lists]).means
    assert means["r@1"] < 0.5
    assert means["r@2"] < 0.7


def built(folder: Path, tokenizer_json: Path, lists: str, qrels: dict[str, str]) -> Collection:
    """A collection of MS MARCO's lists of candidates and files of judgements."""
    folder.mkdir()
    for name, content in {"top1000.dl": lists, **qrels}.items():
        (folder / name).write_text(content)
    return build("msmarco", [folder], folder / "made", tokenizers.load(tokenizer_json))


def test_graded_lists_are_measured_as_by_ir_measures(shards: Path, tmp_path: Path) -> None:
    """Grades of 3, 1, 0 and -2; candidates that nobody judged; judged documents that are not in the list."""
    import ir_measures

    listed = {"1": ["10", "11", "12", "13"], "2": ["10", "14"], "3": ["11", "12"], "4": ["13"]}
    judged = {"1": {"10": 3, "11": 1, "12": 0, "99": 2}, "2": {"14": -2, "98": 1}, "3": {"11": -2, "12": 0}, "4": {}}
    lines = "".join(f"{q}\t{d}\tquery {q}\tpassage {d}\n" for q, documents in listed.items() for d in documents)
    rows = "".join(f"{q} 0 {d} {grade}\n" for q, of_query in judged.items() for d, grade in of_query.items())
    opened = built(tmp_path / "dl", shards / "tokenizer.json", lines, {"2019qrels-pass.txt": rows})
    task = CandidateTask.of(opened, "top1000.dl")
    assert (len(task.lists), task.left_out) == (2, 1)  # query 4 is not judged, 3 has no relevant document
    rng = np.random.default_rng(0)
    scores = [rng.standard_normal(len(positions)).astype(np.float32) for _, positions in task.lists]
    qrels = [ir_measures.Qrel(q, d, max(0, g)) for q in ("1", "2") for d, g in judged[q].items()]
    run = [
        ir_measures.ScoredDoc(opened.queries.ids[task.queries[query]], opened.corpus.ids[task.pool[i]], float(score))
        for of_list, (query, positions) in zip(scores, task.lists, strict=True)
        for score, i in zip(of_list, positions, strict=True)
    ]
    measures = [ir_measures.nDCG @ 10, ir_measures.AP, ir_measures.RR, ir_measures.R @ 2]
    theirs = ir_measures.calc_aggregate(measures, qrels, run)
    means = task.measure(scores).means
    assert [means[name] for name in ("ndcg@10", "map", "mrr", "r@2")] == pytest.approx([theirs[m] for m in measures])
    assert 0 < means["ndcg@10"] < 0.6


@pytest.mark.parametrize("relevant", [False, True])
def test_the_candidate_that_is_the_query_is_left_out(shards: Path, tmp_path: Path, relevant: bool) -> None:
    """If it is relevant, it counts as not found."""
    lists = "".join(f"a-1\ta-{i}\tfox\t{text}\n" for i, text in enumerate(("fox", "dog", "cat"), 1))
    own = "a-1 0 a-1 1\n" * relevant
    opened = built(tmp_path / "c", shards / "tokenizer.json", lists, {"qrels.dl.tsv": own + "a-1 0 a-2 1\n"})
    sizes, found = {}, {}
    for rule in IDENTICAL_IDS:
        task = CandidateTask.of(opened, "top1000.dl", rule)
        sizes[rule] = len(task.lists[0][1]), task.identical, len(task.pool)
        names = [opened.corpus.ids[task.pool[i]] for i in task.lists[0][1]]
        best_first = np.array([-["a-1", "a-2", "a-3"].index(name) for name in names], np.float32)
        found[rule] = task.measure([best_first]).means["r@5"]
    assert sizes == {"auto": (3, 0, 3) if relevant else (2, 1, 2), "on": (2, 1, 2), "off": (3, 0, 3)}
    assert found == {"auto": 1, "on": 0.5 if relevant else 1, "off": 1}
    if relevant:
        alone = built(tmp_path / "alone", shards / "tokenizer.json", lists, {"qrels.dl.tsv": own})
        with pytest.raises(InputError, match="has no candidate lists, with a relevant candidate and another one"):
            CandidateTask.of(alone, "top1000.dl", "on")


def test_a_comparison(lists: Collection, tmp_path: Path) -> None:
    keys = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}
    siamese = load_trained(write_run(tmp_path / "run", lists.directory / "tokenizer.json", seed=1, **keys))
    models = {"m": siamese, "pairs": overlap_run(lists)}
    results = compare_lists(systems_of(lists, models, bm25=True), "test")
    assert [*results.systems] == ["bm25", "m", "pairs"]
    bm25 = results.systems["bm25"].metrics
    assert bm25.keys() == {"r@1", "r@2", "r@5", "mrr", "map", "auc", "mrr_all", "ndcg@5", "ndcg@10"}
    assert bm25["mrr"] > 0.8 > results.systems["m"].metrics["mrr"]  # questions are parts of their passages
    assert [pair.systems for pair in compared(results)] == [["m", "pairs"]]
    assert 0 < compared(results)[0].p_value < 0.05
    assert results.about.candidates == CandidateLists(lists=LISTS - 2, left_out=2, fewest=CANDIDATES, most=CANDIDATES)
    (stage,) = results.systems["pairs"].stages
    assert stage.max_tokens == Limits(query=8, document=16)
    assert compare_lists(systems_of(lists, {"m": siamese}), "test").pairs == []


@pytest.fixture(scope="module")
def pairs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return labelled_pairs(tmp_path_factory.mktemp("pairs") / "c", toy_collection / "tokenizer.json")


def plain_right(pairs: Collection, shift: int = 0) -> np.ndarray:
    """For each pair, whether `Overlap` predicts the right class."""
    groups, right = pairs.groups("test"), []
    for i in range(len(groups)):
        query, (document,), (label,) = groups[i]
        tokens = pairs.queries.tokens(query)[:6].tolist(), pairs.corpus.tokens(document)[:14].tolist()
        right.append((plain_overlap(*tokens) + shift) % 3 == label)
    return np.array(right, np.float64)


def test_accuracy_is_that_of_a_plain_loop(pairs: Collection) -> None:
    first, second = overlap_run(pairs, classes=3), overlap_run(pairs, classes=3)
    shifted = second.model.score_pairs
    second.model.score_pairs = lambda **arrays: shifted(**arrays).roll(1, dims=1)
    results = compare_classes(systems_of(pairs, {"a": first, "b": second}), "test")
    right = plain_right(pairs), plain_right(pairs, shift=1)
    accuracies = [results.systems[name].metrics["accuracy"] for name in ("a", "b")]
    assert accuracies == pytest.approx([row.mean() for row in right])
    assert 0 < accuracies[0] != accuracies[1] < 1
    assert [pair.p_value for pair in results.pairs] == [paired_permutation_test(right[1], right[0])]
    labels = np.asarray(pairs.groups("test").labels)
    shares = {name: float((labels == i).mean()) for i, name in enumerate(CLASSES)}
    assert results.about.classes == Classes(pairs=60, shares=shares)
    assert results.about.queries <= 60


REFUSED: list[tuple[Callable[..., object], str, str, str]] = [  # what is read, of which collection and split
    (CandidateTask.of, "toy", "test", "splits/test: has no candidate lists, .* leave out --candidates"),
    (CandidateTask.of, "toy", "dev", "no split 'dev'; choose one of: test, train"),
    (CandidateTask.of, "pairs", "test", "splits/test: its labels are classes, not relevance: .*--classes"),
    (Task.of, "pairs", "test", "splits/test: its labels are classes, not relevance: .*--classes"),
    (read_classes, "toy", "test", "splits/test: its labels are not classes: leave out --classes"),
    (read_classes, "pairs", "dev", "no split 'dev'; choose one of: test"),
]


@pytest.mark.parametrize(("read", "name", "split", "words"), REFUSED)
def test_splits_of_another_kind_are_refused(
    opened: Collection, pairs: Collection, read: Callable[..., object], name: str, split: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read({"toy": opened, "pairs": pairs}[name], split)


def test_labels_between_whole_numbers_are_no_relevance(opened: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = opened.groups("test")
    taught = replace(groups, labels=groups.labels + np.float32(0.5))
    monkeypatch.setattr(Collection, "groups", lambda self, split: taught)
    with pytest.raises(InputError, match="splits/test: its labels are not whole numbers .*, so not relevance"):
        CandidateTask.of(opened, "test")


def test_models_of_another_kind_are_refused_before_all_is_read(lists: Collection, pairs: Collection) -> None:
    with pytest.raises(InputError, match="run/step: predicts classes and gives no score to rank by: .*--classes"):
        compare_lists(systems_of(lists, {"m": overlap_run(lists, classes=3)}), "test")
    two = overlap_run(pairs, classes=2)
    for model, words in (
        (overlap_run(pairs), "method.loss=binary does not predict classes: .* method.loss=classes, or leave out --cla"),
        (tokens_run(pairs), "a tokens with method.loss=softmax does not predict classes"),
        (two, "predicts 2 classes, .* has 3: entailment, neutral, contradiction"),
    ):
        with pytest.raises(InputError, match=words):
            compare_classes(systems_of(pairs, {"m": model}), "test")
    assert [rows for rows, _ in two.model.batches] == [1]
