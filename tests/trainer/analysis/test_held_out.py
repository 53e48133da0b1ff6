"""Held-out micro-batches: always the same, and only of shards with the run's tokenizer."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.analysis.held_out import held_out_arrays
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.recipe.build import build_batcher
from tests.trainer.runs import write_run


def test_the_first_examples_come_in_batches_always_with_the_same_masks(tmp_path: Path, shards: Path) -> None:
    trained = load_trained(write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32))
    batches = list(held_out_arrays(trained, shards, 10, 4))
    assert [len(arrays["input_ids"]) for arrays in batches] == [4, 4, 2]
    for arrays, again in zip(batches, held_out_arrays(trained, shards, 10, 4), strict=True):
        assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


def test_every_chunk_of_a_shard_is_read(tmp_path: Path, shards: Path) -> None:
    trained = load_trained(write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32))
    source = ShardSource(Manifest.load(shards))
    assert max(source.chunks) > 1
    of_all = [
        d for shard, chunks in enumerate(source.chunks) for chunk in range(chunks) for d in source.read(shard, chunk)
    ]
    examples = build_batcher(trained.recipe.method, trained.tokenizer).examples(of_all)
    (batch,) = held_out_arrays(trained, shards, 10**6, 10**6)
    assert len(batch["input_ids"]) == len(examples) - 1  # the last one may be short


def test_shards_of_another_tokenizer_are_refused(tmp_path: Path, shards: Path) -> None:
    other = tokenizers.train(["another set of words"] * 3, 80, tmp_path / "tokenizer.json")
    trained = load_trained(write_run(tmp_path / "run", other.path, name="mlm", max_tokens=32))
    with pytest.raises(InputError, match="was tokenised with another tokenizer than .*name shards of the run's"):
        next(held_out_arrays(trained, shards, 1, 1))
