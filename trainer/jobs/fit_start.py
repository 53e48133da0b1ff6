"""What a new model takes from documents of the first source before the first step: `start_terms`, `query: idf`.

The documents depend on no number of ranks. A run that resumes has it all in its checkpoint.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from deepsiam.data_prep.common.progress import track
from deepsiam.models.batching.framing import arguments_of
from deepsiam.models.matching.query_weights import IdfTable, document_frequencies
from deepsiam.models.matching.start_terms import DOCUMENTS, FitsStart
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.opened import Data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe


def fit_to_groups(recipe: FinetuneRecipe, model: FitsStart, data: Data) -> list[str]:
    """Fit to a collection: terms to relevant documents, weights to all documents; return lines on it."""
    source = next(iter(data.order.sources.values())).source
    assert isinstance(source, GroupSource)
    corpus, lines = source.collection.corpus, list[str]()
    if model.keys.start_terms:
        examples = source.read(0, 0)[:DOCUMENTS]
        texts = [corpus.tokens(int(example.candidates[0])) for example in examples]
        lines.append(_fit_terms(model, recipe.method.document_framing(data.tokenizer).arrays(texts)))
    every_document = (corpus.tokens(i) for i in track(range(len(corpus)), "count tokens", "documents"))
    return lines + _fit_idf(model, every_document)


def fit_to_pairs(recipe: PretrainRecipe, model: TrunkModel, data: Data) -> list[str]:
    """Fit to the first shard of pairs: terms to its first documents, weights to all; return lines on it."""
    assert isinstance(model, FitsStart)
    batcher, lines = recipe.method.batcher(data.tokenizer), list[str]()
    source = next(iter(data.order.sources.values())).source
    if model.keys.start_terms:
        arrays = batcher.micro_batch(batcher.examples(source.read(0, 0))[:DOCUMENTS], []).arrays
        lines.append(_fit_terms(model, arguments_of("document_", arrays)))
    chunks = (batcher.examples(source.read(0, chunk)) for chunk in range(source.chunks[0]))
    return lines + _fit_idf(model, (pair.document for pairs in chunks for pair in pairs))


def _fit_terms(model: FitsStart, documents: Mapping[str, np.ndarray]) -> str:
    return model.fit_start(**{name: torch.from_numpy(array) for name, array in documents.items()})


def _fit_idf(model: FitsStart, texts: Iterable[np.ndarray]) -> list[str]:
    table = getattr(model, "query_table", None)
    if not isinstance(table, IdfTable):
        return []
    frequencies, number = document_frequencies(texts, len(table.idf))
    table.fit(frequencies, number)
    return [f"tokens of queries weigh their inverse document frequency in {number:,} documents"]
