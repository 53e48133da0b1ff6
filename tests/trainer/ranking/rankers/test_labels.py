"""Rankers by labels: windows against a plain loop, orders, ties, other tokenizers, options and what is refused."""

import math
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

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.rankers.labels import ByLabels, Listwise, Pointwise
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.encode import BATCH_TOKENS
from deepsiam.trainer.ranking.retrieval.system import List
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.models.tiny import VOCABULARY
from tests.toy import TRUNK
from tests.trainer.interop.family_folders import write_causal_lm
from tests.trainer.ranking.rankers.test_pairs_and_duels import LISTS
from tests.trainer.runs import write_run

PROMPT = {"name": "label_ranker", "loss": "rank_net", "max_query_tokens": 4, "max_document_tokens": 5}
LIST = LabelRankerConfig.model_validate(
    {**PROMPT, "template": "{query}:{passages}=", "passage": "{label}{passage};", "labels": [*"ABCDEF"]}
)
PAIR = LabelRankerConfig.model_validate({**PROMPT, "template": "{query}:{document}=", "labels": ["y", "n"]})
SEMICOLON, EQUALS = (ids[0] for ids in VOCABULARY.encode([";", "="]))


class Some:
    """Texts that are known; every fifth is a copy of the first."""

    def __init__(self, number: int, longest: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rows = [rng.integers(6, 15, rng.integers(1, longest)) for _ in range(number)]
        self.rows[::5] = [self.rows[0]] * len(self.rows[::5])

    def tokens(self, i: int) -> np.ndarray:
        raise AssertionError("the ids are another tokenizer's")

    def text(self, i: int) -> str:
        return "".join(f"w{token}" for token in self.rows[i])


QUERIES, DOCUMENTS = Some(10, 9, seed=0), Some(30, 9, seed=1)


def plain_logit(query: list[int], passage: list[int], place: int, steep: float = 1.0) -> float:
    """The logit of a label; it depends on the query, on the passage, and on its place in the prompt."""
    weighted = sum((at + 1) * token for at, token in enumerate(passage))
    return round(math.sin(weighted + 3 * sum(query)) * 3, 6) + steep * place / 7


class Plain(TrunkModel):
    """The model of `plain_logit`; it counts the rows of its batches."""

    def __init__(self, kind: str, steep: float) -> None:
        super().__init__()
        self.kind, self.steep = kind, steep
        self.rows: list[int] = []

    def label_logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        self.rows.append(len(ids))
        logits = torch.full((len(ids), 6), 99.0)  # of labels that are not in the prompt
        for i, (row, real) in enumerate(zip(ids, mask, strict=True)):
            query, passages = " ".join(map(str, row[real].tolist())).split(str(VOCABULARY.encode([":"])[0][0]), 1)
            asked = [int(token) for token in query.split()[1:]]
            parts = [part.split() for part in passages.removesuffix(f" {EQUALS}").split(f" {SEMICOLON}")]
            if self.kind == "pointwise":
                logits[i, :2] = torch.tensor([plain_logit(asked, [int(token) for token in parts[0]], 0), 0.0])
                continue
            for place, part in enumerate(parts[:-1]):
                logits[i, place] = plain_logit(asked, [int(token) for token in part[1:]], place, self.steep)
        return logits

    def relevance(self, logits: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(logits[:, 0] - logits[:, 1])


def ranker(keys: LabelRankerConfig = LIST, steep: float = 1.0, **options: str) -> ByLabels:
    texts: Any = SimpleNamespace(queries=QUERIES, corpus=DOCUMENTS, directory=Path("texts"))
    model: Any = Plain("listwise" if keys.is_list else "pointwise", steep)
    tokenizer: Any = VOCABULARY
    loaded = LoadedModel(model, keys, tokenizer, Path("model"))
    return (Listwise if keys.is_list else Pointwise)(loaded, texts).with_options(options)


def logit(query: int, document: int, place: int, steep: float = 1.0) -> float:
    """The logit of a document at a place, its texts cut as prompts cut them."""
    return plain_logit(QUERIES.rows[query][:4].tolist(), DOCUMENTS.rows[document][:5].tolist(), place, steep)


def ordered(query: int, documents: list[int], window: list[int], steep: float = 1.0) -> list[int]:
    """A window's items by their logits, ties by the item's number."""
    return sorted(window, key=lambda item: (-logit(query, documents[item], window.index(item), steep), item))


@given(lists=LISTS, budget=st.integers(1, 300), steep=st.sampled_from([0.0, 1.0]))
def test_windows_are_ranked_from_the_bottom(lists: list[List], budget: int, steep: float) -> None:
    one = ranker(steep=steep, window="4", stride="2")
    with patch.dict(BATCH_TOKENS, cpu=budget):
        scores = one.scores(lists)
    windows = 0
    for (query, documents), of_list in zip(lists, scores, strict=True):
        order, end = [*range(len(documents))], len(documents)
        while end > 1:
            start = max(0, end - 4)
            order[start:end] = ordered(query, [*documents], order[start:end], steep)
            end, windows = (end - 2 if start else 0), windows + 1
        assert np.argsort(-of_list).tolist() == order
        assert sorted(of_list.tolist()) == [*range(1, len(documents) + 1)]
    assert sum(one.model.rows) == windows == round(one.passes_made * len(lists))
    assert windows == sum(one.passes(len(documents)) for _, documents in lists)


@pytest.mark.parametrize("sort", ["heap", "bubble"])
@given(lists=LISTS, top=st.integers(1, 9))
def test_the_best_are_found_by_taking_the_best_of_windows(sort: str, lists: list[List], top: int) -> None:
    """Where the logits do not depend on the place, these are the documents of the largest."""
    one = ranker(steep=0.0, sort=sort, window="3", top=str(top))
    for (query, documents), of_list in zip(lists, one.scores(lists), strict=True):
        expected = sorted(-logit(query, document, 0, 0.0) for document in documents)[:top]
        found = [-logit(query, documents[i], 0, 0.0) for i in np.argsort(-of_list)[:top]]
        assert found == pytest.approx(expected)
    assert round(one.passes_made * len(lists)) <= sum(one.passes(len(documents)) for _, documents in lists)


def test_equal_logits_keep_the_order_of_the_list() -> None:
    copies = [0, 5, 10, 15, 20, 25, 0, 5]
    for options in ({}, {"sort": "heap"}, {"sort": "bubble"}, {"shuffles": "3"}):
        (scores,) = ranker(steep=0.0, **options).scores([(1, copies)])
        assert scores.tolist() == [*range(8, 0, -1)]


def test_several_orders_of_a_window_depend_less_on_the_places() -> None:
    lists: list[List] = [(query, [1, 7, 3, 12, 9, 4]) for query in range(10)]
    true = [np.argsort([-logit(query, i, 0, 0.0) for i in documents]).tolist() for query, documents in lists]

    def agreement(**options: str) -> float:
        one = ranker(steep=9.0, **options)
        orders = [np.argsort(-scores).tolist() for scores in one.scores(lists)]
        assert one.passes_made == int(options["shuffles"])
        pairs = [
            (of.index(a) < of.index(b)) == (right.index(a) < right.index(b))
            for of, right in zip(orders, true, strict=True)
            for a in range(6)
            for b in range(a)
        ]
        return float(np.mean(pairs))

    assert agreement(shuffles="20") > agreement(shuffles="1") + 0.1
    again = [ranker(steep=9.0, shuffles="5").scores(lists) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    (alone,) = ranker(steep=9.0, shuffles="5").scores(lists[3:4])
    np.testing.assert_array_equal(alone, again[0][3])  # the other lists do not matter


@given(lists=LISTS, budget=st.integers(1, 300))
def test_a_documents_score_is_the_log_of_its_probability(lists: list[List], budget: int) -> None:
    one = ranker(PAIR)
    with patch.dict(BATCH_TOKENS, cpu=budget):
        scores = one.scores(lists)
    for (query, documents), of_list in zip(lists, scores, strict=True):
        expected = [-math.log1p(math.exp(-logit(query, document, 0))) for document in documents]
        np.testing.assert_allclose(of_list, expected, rtol=1e-5)
    distinct = {(QUERIES.text(q)[:8], DOCUMENTS.text(d)) for q, documents in lists for d in documents}
    assert sum(one.model.rows) <= len(distinct)
    assert (one.by_itself, one.passes(7)) == (True, 7)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"window": "2"}, 99),
        ({"stride": "5", "shuffles": "3"}, 60),
        ({"sort": "heap", "top": "1"}, None),  # as many as the list needs
        ({"sort": "bubble", "top": "2"}, 40),
    ],
)
def test_the_number_of_forward_passes(
    options: dict[str, str], passes: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ranker(**options)
    assert one.passes(1) == one.passes(0) == 0
    one.scores([(0, [i % 30 for i in range(100)])], "re-rank")
    limit = "at most " if "sort" in options else ""
    words = f"re-rank: {limit}{one.passes(100):,} forward passes of lists, {one.passes(100):,} a query\n"
    assert words in capsys.readouterr().err
    assert sum(one.model.rows) == one.passes_made <= one.passes(100)
    assert passes in (None, one.passes_made)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": "1"}, "'weight' is not an option of lists: window, stride, sort, top, shuffles, recipe"),
        ({"window": "7"}, "'7': a window has 2 to 6 passages, one for each label"),
        ({"window": "1"}, "'1': a window has 2 passages or more"),
        ({"window": "4", "stride": "4"}, "'4': the stride is less than the window, 4, so that no passage is left out"),
        ({"sort": "quick"}, "'quick': sort is window, heap, bubble"),
        ({"top": "3"}, "top is not an option of sort=window"),
        ({"sort": "heap", "stride": "2"}, "stride is not an option of sort=heap"),
        ({"shuffles": "0"}, "'0': shuffles is a number"),
    ],
)
def test_other_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ranker(**options)
    with pytest.raises(ValueError, match="has no option but recipe: leave out"):
        ranker(PAIR, **options)


def test_a_list_of_one_a_score_alone_and_a_missing_text_are_refused() -> None:
    one = ranker()
    with pytest.raises(InputError, match="compares the documents of a list: re-rank 2 or more"):
        one.require_depth(1)
    with pytest.raises(InputError, match="scores a document by comparing it with its list"):
        one.require_by_itself()
    corpus = SimpleNamespace(text=lambda _: "", tokens=lambda i: DOCUMENTS.rows[i], ids=[f"d{i}" for i in range(9)])
    one.collection = SimpleNamespace(queries=QUERIES, corpus=corpus, directory=Path("texts"))  # type: ignore[assignment]
    with pytest.raises(InputError, match="has no text of d3: make the collection again"):
        one.scores([(0, [3, 4])])


def test_a_published_model_reads_text_and_a_run_its_own_prompt(opened: Collection, tmp_path: Path) -> None:
    listwise = open_ranker(write_causal_lm(tmp_path / "qwen3", "qwen3"), opened)
    lists: list[List] = [(0, [3, 1, 4, 5]), (2, [9, 7])]
    assert sorted(listwise.scores(lists)[0].tolist()) == [1, 2, 3, 4]
    recipe, base = tmp_path / "yes_no.yaml", f"extends: {Path('recipes/finetune.yaml').resolve()}\n"
    keys = "{name: label_ranker, loss: rank_net, template: '{query}: {document}\n\n', labels: [b, s], "
    recipe.write_text(f"{base}method: {keys}max_prompt_tokens: 500}}\n")
    pointwise = listwise.with_options({"recipe": str(recipe)})
    assert pointwise.kind == "pointwise"
    for scores, (query, documents) in zip(pointwise.scores(lists), lists, strict=True):
        assert (scores < 0).all()
        single = [float(pointwise.scores([(query, [document])])[0][0]) for document in documents]
        np.testing.assert_allclose(scores, single, rtol=1e-5)  # neither the batch nor the list matters

    prompt = {**PROMPT, "template": "{query}={passages}=", "passage": "{label} {passage}", "labels": ["a", "b", "c"]}
    trunk, tokenizer = {**TRUNK, "is_decoder": True}, opened.directory / "tokenizer.json"
    run = write_run(tmp_path / "run", tokenizer, trunk=trunk, max_prompt_tokens=64, **prompt)
    trained = ranker_of(load_trained(run), opened)
    assert (trained.searches, trained.by_itself, trained.kind) == (False, False, "listwise")
    with pytest.raises(ValueError, match="was trained with a prompt: leave out recipe"):
        trained.with_options({"recipe": str(recipe)})
    recipe.write_text(base)
    with pytest.raises(ValueError, match="its method is siamese, not label_ranker"):
        listwise.with_options({"recipe": str(recipe)})
