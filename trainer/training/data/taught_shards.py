"""Open the teacher's vectors of the texts of shards; open_shards.py calls it for a method that learns them."""

from collections.abc import Iterator, Sequence

import numpy as np

from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.interface import Batcher
from deepsiam.models.pretraining.distil import DistilConfig, taught_pairs
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.data.teacher import TeacherVectors, open_teacher
from deepsiam.trainer.training.recipe.schema import PretrainRecipe


def with_teacher(
    recipe: PretrainRecipe, tokenizer: Tokenizer, batcher: Batcher, sources: Sequence[ShardSource]
) -> tuple[Batcher, TeacherVectors | None]:
    """Return the batcher with the vectors of the recipe's teacher, and these; raise InputError if they do not suit it.

    Of shards that the vectors were not made of, the texts of the first chunks must be known.
    """
    if (teacher := open_teacher(recipe, tokenizer)) is None:
        return batcher, None
    assert isinstance(recipe.method, DistilConfig)
    teacher.require_passages(recipe.method.passage_tokens)
    for source in sources:
        texts = _first_texts(source, recipe.method.passage_tokens)
        teacher.require_texts(texts, source.manifest.sha256, source.manifest.directory)
    return TaughtBatcher(batcher, teacher), teacher


def _first_texts(source: ShardSource, passage_tokens: int) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield the side, the tokens and the name of every text of each shard's first chunk."""
    for shard, chunks in enumerate(source.chunks):
        for document in source.read(shard, 0) if chunks else ():
            for pair in taught_pairs(document, passage_tokens):
                yield "query", pair.query, document.id
                yield "document", pair.document, document.id
        source.release(shard)
