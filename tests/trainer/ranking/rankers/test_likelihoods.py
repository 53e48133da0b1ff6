"""TILDE's scores: against sums over terms, and the same for any lists."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.models.matching.tilde import terms_in
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}
LISTS = [(0, list(range(30))), (1, [5, 3, 29]), (0, [29])]


def _ranker(opened: Collection, folder: Path, alpha: float) -> Ranker:
    tokenizer = opened.directory / "tokenizer.json"
    run = write_run(folder / f"{alpha}", tokenizer, seed=3, name="tilde", alpha=alpha, **LENGTHS)
    return ranker_of(load_trained(run), opened)


def _likelihoods(embed, framing, tokens):
    arrays = {name: torch.from_numpy(array) for name, array in framing.arrays([tokens]).items()}
    with torch.inference_mode():
        vectors, _ = embed(**arrays)
    return vectors[0, 0].double().numpy()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_scores_are_sums_over_terms(opened: Collection, tmp_path: Path, alpha: float) -> None:
    ranker = _ranker(opened, tmp_path, alpha)
    model, terms = ranker.model.eval(), terms_in(opened.tokenizer)
    framings = ranker.method.query_framing(opened.tokenizer), ranker.method.document_framing(opened.tokenizer)
    found = ranker.scores(LISTS)
    for (query, documents), scores in zip(LISTS, found, strict=True):
        assert scores.dtype == np.float32
        of_query = framings[0].cut(opened.queries.tokens(query))
        given_query = _likelihoods(model.embed_queries, framings[0], of_query)
        for document, score in zip(documents, scores.tolist(), strict=True):
            of_document = framings[1].cut(opened.corpus.tokens(document))
            given_document = _likelihoods(model.embed_documents, framings[1], of_document)
            sides = given_document[of_query[terms[of_query]]].sum(), given_query[of_document[terms[of_document]]].mean()
            assert score == pytest.approx(alpha * sides[0] + (1 - alpha) * sides[1], rel=1e-5)


def test_a_score_does_not_depend_on_its_list(opened: Collection, tmp_path: Path) -> None:
    ranker = _ranker(opened, tmp_path, 0.5)
    together, alone = ranker.scores(LISTS), [ranker.scores([one])[0] for one in LISTS]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)
    assert together[0][29] == together[2][0]
