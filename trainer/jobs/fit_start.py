"""`start_terms`: fit the number of terms of a new sparse model to documents of the first source, before the first step.

The documents depend on no number of ranks.
"""

from collections.abc import Mapping

import numpy as np
import torch

from deepsiam.models.batching.framing import arguments_of
from deepsiam.models.matching.start_terms import DOCUMENTS, FitsStart
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.opened import Data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe


def fit_to_groups(recipe: FinetuneRecipe, model: TrunkModel, data: Data) -> str:
    """Fit to relevant documents of a collection; return a line on it."""
    source = next(iter(data.order.sources.values())).source
    assert isinstance(source, GroupSource)
    examples = source.read(0, 0)[:DOCUMENTS]
    texts = [source.collection.corpus.tokens(int(example.candidates[0])) for example in examples]
    return _fit(model, recipe.method.document_framing(data.tokenizer).arrays(texts))


def fit_to_pairs(recipe: PretrainRecipe, model: TrunkModel, data: Data) -> str:
    """Fit to documents of streamed pairs; return a line on it."""
    batcher = recipe.method.batcher(data.tokenizer)
    pairs = batcher.examples(next(iter(data.order.sources.values())).source.read(0, 0))[:DOCUMENTS]
    return _fit(model, arguments_of("document_", batcher.micro_batch(pairs, []).arrays))


def _fit(model: TrunkModel, documents: Mapping[str, np.ndarray]) -> str:
    assert isinstance(model, FitsStart)
    return model.fit_start(**{name: torch.from_numpy(array) for name, array in documents.items()})
