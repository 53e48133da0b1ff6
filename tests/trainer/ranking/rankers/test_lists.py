"""A model whose scores depend on the list, on each list as a whole."""

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval import system
from tests.trainer.ranking.retrieval.fakes import Tokens, tokens_run


class Shares(Tokens):
    """The scores of a list, as shares of 1."""

    kind = "lists"

    def score(self, queries: Vectors, documents: Vectors) -> torch.Tensor:
        return super().score(queries, documents).softmax(dim=1)


def test_a_score_that_depends_on_the_list_sees_all_of_it_and_equal_texts_tie(
    opened: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "DOCUMENT_VECTORS", 1)
    lists = [(3, [9, 0, 3, 9, 0, 7]), (5, [3, 4])]
    run = tokens_run(opened)
    alone = ranker_of(run, opened).scores(lists)
    run.model.__class__ = Shares
    together = ranker_of(run, opened).scores(lists)
    for logits, shares in zip(alone, together, strict=True):
        np.testing.assert_allclose(shares, np.exp(logits) / np.exp(logits).sum(), rtol=1e-4)
    assert together[0][0] == together[0][3]
    assert together[0][1] == together[0][4]
