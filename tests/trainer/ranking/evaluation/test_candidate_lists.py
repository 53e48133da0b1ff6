"""Candidate lists: which of them count, how ties are broken, and the scores of every kind of system."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.groups import Groups
from deepsiam.data_prep.collections.relevant import IDENTICAL_IDS
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask, compare_lists
from deepsiam.trainer.ranking.evaluation.results_file import CandidateLists, Limits
from deepsiam.trainer.ranking.evaluation.table import compared
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests.trainer.ranking.retrieval.fakes import overlap_run, systems_of
from tests.trainer.ranking.retrieval.small_collections import CANDIDATES, LISTS, candidate_lists, labelled_pairs
from tests.trainer.runs import write_run

SIAMESE = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def lists(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return candidate_lists(tmp_path_factory.mktemp("lists") / "c", toy_collection / "tokenizer.json")


@pytest.fixture(scope="module")
def siamese(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("run")
    return load_trained(write_run(folder / "run", toy_collection / "tokenizer.json", seed=1, **SIAMESE))


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


def test_the_metrics_are_those_of_a_plain_sort(lists: Collection) -> None:
    task = CandidateTask.of(lists, "test")
    rng = np.random.default_rng(0)
    scores = [rng.integers(0, 3, len(positions)).astype(np.float32) for _, positions in task.lists]
    reciprocal, first = [], []
    for of_list, (_, positions), relevant in zip(
        scores, task.lists, (grades > 0 for grades in task.grades), strict=True
    ):
        order = sorted(range(len(of_list)), key=lambda i: (-of_list[i], positions[i]))  # noqa: B023
        reciprocal.append(1 / (1 + [relevant[i] for i in order].index(True)))
        first.append(relevant[order[0]] / relevant.sum())
    measured = task.measure(scores)
    np.testing.assert_allclose(measured.values["mrr"], reciprocal)
    np.testing.assert_allclose(measured.values["r@1"], first)


def test_graded_lists_are_measured_as_by_ir_measures(shards: Path, tmp_path: Path) -> None:
    """Grades of 3, 1, 0 and -2; candidates that nobody judged; judged documents that are not in the list."""
    import ir_measures

    folder = tmp_path / "dl"
    folder.mkdir()
    listed = {"1": ["10", "11", "12", "13"], "2": ["10", "14"], "3": ["11", "12"], "4": ["13"]}
    lines = [f"{q}\t{d}\tquery {q}\tpassage {d}\n" for q, documents in listed.items() for d in documents]
    (folder / "top1000.dl").write_text("".join(lines))
    judged = {"1": {"10": 3, "11": 1, "12": 0, "99": 2}, "2": {"14": -2, "98": 1}, "3": {"11": -2, "12": 0}, "4": {}}
    rows = [f"{q} 0 {d} {grade}\n" for q, of_query in judged.items() for d, grade in of_query.items()]
    (folder / "2019qrels-pass.txt").write_text("".join(rows))
    opened = build("msmarco", [folder], tmp_path / "made", tokenizers.load(shards / "tokenizer.json"))
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


def list_with_its_query(folder: Path, tokenizer_json: Path, qrels: str) -> Collection:
    """One list of three candidates, the first of which is the query."""
    (folder / "in").mkdir()
    (folder / "in" / "top1000.x").write_text("a-1\ta-1\tfox\tfox\na-1\ta-2\tfox\tdog\na-1\ta-3\tfox\tcat\n")
    (folder / "in" / "qrels.x.tsv").write_text(qrels)
    return build("msmarco", [folder / "in"], folder / "made", tokenizers.load(tokenizer_json))


@pytest.mark.parametrize("relevant", [False, True])
def test_the_candidate_that_is_the_query_is_left_out(shards: Path, tmp_path: Path, relevant: bool) -> None:
    """If it is relevant, it counts as not found."""
    qrels = "a-1 0 a-1 1\n" * relevant + "a-1 0 a-2 1\n"
    opened = list_with_its_query(tmp_path, shards / "tokenizer.json", qrels)
    sizes, found = {}, {}
    for rule in IDENTICAL_IDS:
        task = CandidateTask.of(opened, "top1000.x", rule)
        sizes[rule] = len(task.lists[0][1]), task.identical, len(task.pool)
        names = [opened.corpus.ids[task.pool[i]] for i in task.lists[0][1]]
        best_first = np.array([-["a-1", "a-2", "a-3"].index(name) for name in names], np.float32)
        found[rule] = task.measure([best_first]).means["r@5"]
    assert sizes == {"auto": (3, 0, 3) if relevant else (2, 1, 2), "on": (2, 1, 2), "off": (3, 0, 3)}
    assert found == {"auto": 1, "on": 0.5 if relevant else 1, "off": 1}


def test_lists_whose_one_relevant_candidate_is_the_query_are_refused(shards: Path, tmp_path: Path) -> None:
    opened = list_with_its_query(tmp_path, shards / "tokenizer.json", "a-1 0 a-1 1\n")
    with pytest.raises(InputError, match="has no candidate lists, with a relevant candidate and another one"):
        CandidateTask.of(opened, "top1000.x", "on")


def test_a_comparison(lists: Collection, siamese: TrainedModel) -> None:
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


def test_splits_without_candidate_lists_are_refused(
    opened: Collection, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="splits/test: has no candidate lists, .* leave out --candidates"):
        CandidateTask.of(opened, "test")
    pairs = labelled_pairs(tmp_path / "pairs", toy_collection / "tokenizer.json")
    with pytest.raises(InputError, match="splits/test: its labels are classes, not relevance: .*--classes"):
        CandidateTask.of(pairs, "test")
    with pytest.raises(InputError, match="no split 'dev'; choose one of: test, train"):
        CandidateTask.of(opened, "dev")
    scores = opened.groups("test")
    teacher = Groups(scores.queries, scores.candidates, scores.labels + np.float32(0.5), None)
    monkeypatch.setattr(Collection, "groups", lambda self, split: teacher)
    with pytest.raises(InputError, match="splits/test: its labels are not whole numbers .*, so not relevance"):
        CandidateTask.of(opened, "test")


def test_a_model_of_classes_is_refused(lists: Collection) -> None:
    with pytest.raises(InputError, match="run/step: predicts classes and gives no score to rank by: .*--classes"):
        compare_lists(systems_of(lists, {"m": overlap_run(lists, classes=3)}), "test")
