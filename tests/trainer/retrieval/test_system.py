"""An encoder's score rows against its search."""

import numpy as np
import pytest

from trainer.retrieval import system
from trainer.retrieval.search import search
from trainer.retrieval.system import Embedded


def test_an_encoders_scores_are_those_of_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, documents = (rng.standard_normal((rows, 33)).astype(np.float32) for rows in (9, 130))
    ranking = search(queries, documents, 130)
    monkeypatch.setattr(system, "CORPUS_BLOCK", 50)
    embedded = Embedded(queries, documents)
    scores = embedded.scores(slice(2, 9))
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(np.take_along_axis(scores, ranking.documents[2:], axis=1), ranking.scores[2:])
    assert embedded.rank(5) == ranking.documents[:, :5].tolist()
    assert embedded.shape == (9, 130)
