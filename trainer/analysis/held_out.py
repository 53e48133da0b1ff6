"""Micro-batches of held-out shards, as a trained model's batcher makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.recipe.build import build_batcher
from deepsiam.trainer.training.recipe.schema import PretrainRecipe


def held_out_arrays(trained: TrainedModel, shards: Path, number: int, size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of micro-batches of `size` examples, from the first `number` examples of held-out shards.

    Masks and other random choices are the same every time. Raise InputError where the shards have another tokenizer.
    """
    source = ShardSource(Manifest.load(shards))
    fingerprint = source.manifest.tokenizer["fingerprint"]
    remedy = "name shards of the run's tokenizer"
    require_same_tokenizer(trained.tokenizer, trained.checkpoint, fingerprint, shards, remedy)
    assert isinstance(trained.recipe, PretrainRecipe)  # callers have checked the model
    batcher = build_batcher(trained.recipe.method, trained.tokenizer)
    documents: list[Any] = []
    examples: list[Any] = []
    for shard, chunk in ((shard, chunk) for shard, chunks in enumerate(source.chunks) for chunk in range(chunks)):
        documents += source.read(shard, chunk)
        examples = batcher.examples(documents)
        if len(examples) > number:  # leave out the last one, which may be short
            break
    examples = examples[: min(number, max(1, len(examples) - 1))]
    for start in range(0, len(examples), size):
        batch = examples[start : start + size]
        keys = [(start + i,) for i in range(len(batch))]
        yield batcher.micro_batch(batch, keyed_rngs("analyse", keys)).arrays
