"""A model that ranks: the precision that it computes in."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from tests.trainer.runs import write_run
from trainer.ranking.indexes.dense import DenseIndex
from trainer.ranking.rankers.registry import ranker_of
from trainer.training.checkpoints.load import load_trained

LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}


@pytest.mark.parametrize("name", ["siamese", "colbert", "poly_encoder", "cross_encoder", "duobert"])
def test_models_score_in_bf16_as_in_fp32_but_for_rounding(opened: Collection, tmp_path: Path, name: str) -> None:
    own = {"cross_encoder": {"hard_negatives": 1}, "duobert": {"hard_negatives": 1}, "poly_encoder": {"m": 4}}
    keys = LENGTHS | own.get(name, {})
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name=name, **keys)
    usual, half = (ranker_of(load_trained(run), opened, precision) for precision in (None, "bf16"))
    assert (usual.precision, half.precision) == ("fp32", "bf16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert half.identity == usual.identity
    lists = [(0, list(range(40))), (1, list(range(20, 60)))]
    scores = [np.concatenate(ranker.scores(lists)) for ranker in (usual, half)]
    assert all(of_ranker.dtype == np.float32 for of_ranker in scores)
    assert 0 < np.abs(scores[1] - scores[0]).max() < 0.05 * np.abs(scores[0]).max()


def test_an_index_is_not_continued_in_another_precision(opened: Collection, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name="siamese", **LENGTHS)
    usual, half = (ranker_of(load_trained(run), opened, precision) for precision in (None, "bf16"))
    DenseIndex.build(half, tmp_path / "index")
    with pytest.raises(InputError, match="holds an index with another --precision: name another"):
        DenseIndex.build(usual, tmp_path / "index")
