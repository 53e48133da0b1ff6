"""Pairs are scored once, list by list; duels: which are fought, their scores, position bias and refusals."""

import math
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.duobert import DuobertConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.rankers.duels import AGGREGATES, DuelOptions, DuelRanker, position_bias
from deepsiam.trainer.ranking.rankers.pairs import PairRanker
from deepsiam.trainer.ranking.retrieval.encode import BATCH_TOKENS
from deepsiam.trainer.ranking.retrieval.system import List
from tests.trainer.ranking.retrieval.fakes import Overlap, OverlapConfig, plain_overlap

VOCABULARY = Vocabulary(100, pad=0, unk=1, cls=2, sep=3, mask=4)
LISTS = st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 29), min_size=1, max_size=8)), min_size=1)


class Some:
    """Texts of at least one token; every fifth text is a copy of the first."""

    def __init__(self, number: int, longest: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.texts = [rng.integers(5, 15, rng.integers(1, longest)).astype(np.uint16) for _ in range(number)]
        self.texts[::5] = [self.texts[0]] * len(self.texts[::5])

    def tokens(self, i: int) -> np.ndarray:
        return self.texts[i]


QUERIES, DOCUMENTS = Some(10, 9, seed=0), Some(30, 25, seed=1)


TEXTS: Any = SimpleNamespace(queries=QUERIES, corpus=DOCUMENTS)


def loaded(model: TrunkModel, keys: MatchingConfig) -> LoadedModel:
    return LoadedModel(model, keys, VOCABULARY, Path("run/step"))  # type: ignore[arg-type]


def pair(query: int, document: int) -> tuple[list[int], list[int]]:
    return QUERIES.tokens(query)[:6].tolist(), DOCUMENTS.tokens(document)[:14].tolist()


@given(LISTS, st.integers(1, 200), st.sampled_from([0, 3]))
def test_scores_are_those_of_each_pair(lists: list[List], budget: int, classes: int) -> None:
    model = Overlap(classes)
    with patch.dict(BATCH_TOKENS, cpu=budget):
        scores = PairRanker(loaded(model, OverlapConfig()), TEXTS).scores(lists)
    for (query, documents), of_list in zip(lists, scores, strict=True):
        expected = np.array([plain_overlap(*pair(query, document)) for document in documents])
        assert of_list.dtype == np.float32
        np.testing.assert_array_equal(of_list, np.eye(3)[expected % 3] if classes else expected)
    different = {(*map(tuple, pair(query, document)),) for query, documents in lists for document in documents}
    assert sum(rows for rows, _ in model.batches) == len(different)  # equal pairs are scored once
    for rows, width in model.batches:
        assert rows == 1 or rows * (width - 7) <= budget  # widths are rounded up to a multiple of 8


KEYS = DuobertConfig(name="duobert", hard_negatives=1, max_query_tokens=8, max_document_tokens=16, max_duel_tokens=30)


def plain_logit(query: list[int], first: list[int], second: list[int]) -> float:
    """A logit that depends on each token, its place and its text."""
    texts = [VOCABULARY.cls, *query, VOCABULARY.sep], [*first, VOCABULARY.sep], [*second, VOCABULARY.sep]
    weighted = [sum((at + 1) * token for at, token in enumerate(text)) for text in texts]
    return math.sin(weighted[0] + 2 * weighted[1] + 5 * weighted[2]) * 3


class Plain(TrunkModel):
    """The model of `plain_logit`; it counts the rows of its batches."""

    kind = "duels"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def score_duels(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        self.rows.append(len(ids))
        logits = []
        for row, real, kinds in zip(ids, mask, types, strict=True):
            query, first, second = (row[real & (kinds == kind)].tolist() for kind in range(3))
            logits.append(plain_logit(query[1:-1], first[:-1], second[:-1]))
        return torch.tensor(logits)


def ranker(model: Plain | None = None) -> DuelRanker:
    return DuelRanker(loaded(model or Plain(), KEYS), TEXTS)


def cut(query: int, document: int) -> tuple[list[int], list[int]]:
    """Both texts as a duel reads them: of 30 tokens, each document has half of what the query leaves."""
    of_query = QUERIES.tokens(query)[:6].tolist()
    half = (30 - len(of_query) - 2) // 2
    return of_query, DOCUMENTS.tokens(document)[: min(14, half - 1)].tolist()


def chance(query: int, first: int, second: int) -> float:
    """p that the first document is more relevant, in fp64."""
    texts = cut(query, first), cut(query, second)
    return 1 / (1 + math.exp(-plain_logit(texts[0][0], texts[0][1], texts[1][1])))


AGGREGATED = {
    "sum": sum,
    "binary": lambda chances: sum(p > 0.5 for p in chances),
    "min": min,
    "max": max,
    "log_sum": lambda chances: sum(map(math.log, chances)),
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@given(lists=LISTS, budget=st.integers(1, 400), pairs=st.sampled_from(["ordered", "unordered"]))
def test_scores_are_aggregates_of_each_duel(aggregate: str, lists: list[List], budget: int, pairs: str) -> None:
    model = Plain()
    with patch.dict(BATCH_TOKENS, cpu=budget):
        scores = ranker(model).with_options({"aggregate": aggregate, "pairs": pairs}).scores(lists)
    fought = set()
    for (query, documents), of_list in zip(lists, scores, strict=True):
        texts = [cut(query, document)[1] for document in documents]
        first_of = [texts.index(text) for text in texts]  # equal texts have the score of the first
        expected = []
        for i in range(len(documents)):
            others = [j for j in range(len(documents)) if j != i]
            swapped = [pairs == "unordered" and j < i for j in others]
            for j, swap in zip(others, swapped, strict=True):
                duel = (j, i) if swap else (i, j)
                fought.add((str(cut(query, documents[0])[0]), *(str(texts[place]) for place in duel)))
            chances = [
                1 - chance(query, documents[j], documents[i]) if swap else chance(query, documents[i], documents[j])
                for j, swap in zip(others, swapped, strict=True)
            ]
            expected.append(AGGREGATED[aggregate](chances) if chances else 0)  # a list of one has no duel
        assert of_list.dtype == np.float32
        np.testing.assert_allclose(of_list, [expected[i] for i in first_of], rtol=2e-6, atol=1e-6)
    assert sum(model.rows) == len(fought)  # equal duels are fought once


def test_scores_by_hand() -> None:
    """An even chance is no duel won; large logits neither overflow nor tie."""
    logits = np.array([[np.nan, 0.0, 2.0], [0.0, np.nan, -1.0], [-2.0, 1.0, np.nan]])
    assert DuelOptions("binary").scores(logits).tolist() == [1, 0, 1]
    logits = np.array([[np.nan, -800.0, 900.0], [800.0, np.nan, 1000.0], [-900.0, -1000.0, np.nan]])
    assert DuelOptions("sum").scores(logits).tolist() == [1, 2, 0]
    assert DuelOptions("log_sum").scores(logits).tolist() == [-800, 0, -1900]


@pytest.mark.parametrize(("pairs", "number"), [("ordered", 30), ("unordered", 15), ("2", 12), ("5", 30), ("99", 30)])
def test_the_number_of_forward_passes(pairs: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [1, 7, 3, 12, 9, 4]
    model = Plain()
    one = ranker(model).with_options({"pairs": pairs})
    assert one.passes(6) == len(one.options.duels(0, documents)) == number
    assert (one.passes(1), one.passes(0)) == (0, 0)
    one.scores([(0, documents), (1, [2])], "re-rank")
    assert sum(model.rows) == number
    assert f"re-rank: {number} forward passes of two documents, {number / 2:.0f} a query\n" in capsys.readouterr().err


def test_sampled_opponents_depend_on_query_and_document_alone() -> None:
    documents = [int(i) for i in np.random.default_rng(0).permutation(30) if i % 5][:12]  # different texts
    options = DuelOptions(pairs="4")

    def drawn(query: int, documents: list[int]) -> dict[int, set[int]]:
        duels = options.duels(query, documents)
        assert np.bincount(duels[:, 0]).tolist() == [4] * len(documents)
        assert (duels[:, 0] != duels[:, 1]).all()
        return {
            document: {documents[second] for first, second in duels.tolist() if documents[first] == document}
            for document in documents
        }

    once = drawn(3, documents)
    assert drawn(3, documents) == drawn(3, documents[::-1]) == once
    assert all(len(opponents) == 4 for opponents in once.values())
    assert drawn(4, documents) != once
    met = {opponent for opponents in once.values() for opponent in opponents}
    assert len(met) == 12  # all are drawn by some
    few = ranker().with_options({"pairs": "4"})
    alone, together = few.scores([(3, documents)]), few.scores([(1, [2, 5, 6]), (3, documents[::-1])])
    np.testing.assert_allclose(together[1], alone[0][::-1], rtol=1e-6)
    expected = [sum(chance(3, i, j) for j in once[i]) for i in documents]
    np.testing.assert_allclose(alone[0], expected, rtol=1e-6)


def test_the_position_bias_is_that_of_both_orders() -> None:
    one, lists = ranker(), [(0, [1, 7, 3]), (2, [8, 4]), (5, [6])]
    one.scores(lists)
    both = [
        abs(chance(query, i, j) + chance(query, j, i) - 1)
        for query, documents in lists
        for i, j in permutations(documents, 2)
    ]
    assert one.position_bias == pytest.approx(np.mean(both), rel=1e-6)
    assert position_bias([np.array([[np.nan, 1.5], [-1.5, np.nan]])]) == pytest.approx(0, abs=1e-12)
    for pairs in ("unordered", "1"):
        other = ranker().with_options({"pairs": pairs})
        other.scores(lists)
        assert other.position_bias is None


def test_aggregates_of_the_same_duels_share_their_forward_passes() -> None:
    model, lists = Plain(), [(0, [1, 7, 3]), (2, [8, 4])]
    first = ranker(model)
    expected = first.with_options({"aggregate": "max"}).scores(lists)
    assert sum(model.rows) == 8
    again = first.with_options({"aggregate": "max", "most": "3"}).scores(lists)
    first.scores(lists)
    assert sum(model.rows) == 8
    for a, b in zip(again, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    first.with_options({"pairs": "unordered"}).scores(lists)
    assert sum(model.rows) == 12


def test_long_lists_searches_and_scores_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="a duobert cannot search: it re-ranks what another system found"):
        ranker().system(None)  # type: ignore[arg-type]
    long: list[List] = [(0, [i % 30 for i in range(101)])]
    with pytest.raises(InputError, match=r"10,100 forward passes .* 101 documents: re-rank 100 or fewer, .*most=101"):
        ranker().scores(long)
    assert len(ranker().with_options({"most": "101", "pairs": "1"}).scores(long)[0]) == 101
    with pytest.raises(InputError, match="a list of 4 documents: re-rank 3 or fewer"):
        ranker().with_options({"most": "3"}).scores([(0, [1, 2, 3, 4])])
    monkeypatch.setattr(Plain, "score_duels", lambda self, ids, **_: torch.full((len(ids),), torch.nan))
    with pytest.raises(InputError, match="its scores are not finite"):
        ranker().scores([(0, [1, 2])], work="re-rank")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": "1"}, "'weight' is not an option of duels: aggregate, pairs, most"),
        ({"aggregate": "mean"}, "'mean': aggregate is sum, binary, min, max, log_sum"),
        ({"pairs": "0"}, "'0': pairs is ordered, unordered, a number"),
        ({"most": "many"}, "'many': most is a number"),
    ],
)
def test_other_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ranker().with_options(options)
