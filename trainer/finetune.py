"""Fine-tune a Siamese encoder: `deepspeed --module trainer.finetune RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import torch

from data_prep.collection import Collection
from data_prep.errors import InputError
from models.encoder import build_trunk
from models.siamese import SiameseBatcher
from trainer import trained
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.methods import check_length, model_of, trunk_settings, vocabulary_of
from trainer.recipe import FinetuneRecipe
from trainer.sources import PairSource


def build(recipe: FinetuneRecipe) -> Job:
    """The pre-trained trunk (or its like with random weights) on the labelled pairs of a collection."""
    start = trained.load(recipe.init_from)
    collection = Collection.open(recipe.data.collection)
    if collection.tokenizer.fingerprint != start.tokenizer.fingerprint:
        raise InputError(
            f"data.collection: {recipe.data.collection} was tokenised with another tokenizer than {recipe.init_from}: "
            f"run python -m data_prep collection {recipe.data.collection} --tokenizer {start.tokenizer.path}"
        )
    trunk = start.model.trunk
    if recipe.random_weights:
        torch.manual_seed(recipe.seed)
        trunk = build_trunk(trunk_settings(trunk))
    method = recipe.method
    check_length("method.max_query_tokens", method.max_query_tokens, trunk)
    check_length("method.max_document_tokens", method.max_document_tokens, trunk)
    source = PairSource(collection, recipe.data.split, recipe.data.pairs, recipe.seed)
    batcher = SiameseBatcher(
        vocabulary_of(start.tokenizer),
        collection.corpus,
        source.candidates,
        max_query_tokens=method.max_query_tokens,
        max_document_tokens=method.max_document_tokens,
        negatives_per_query=method.negatives_per_query,
        loss=method.loss,
    )
    return make_job(recipe, model_of(method, trunk.train()), source, batcher, start.tokenizer, source.sha256)


if __name__ == "__main__":
    main("trainer.finetune", FinetuneRecipe, build)
