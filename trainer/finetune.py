"""Fine-tune a Siamese encoder: `deepspeed --module trainer.finetune RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import torch

from data_prep.errors import InputError
from models.encoder import build_trunk
from trainer import trained
from trainer.data import pair_data
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.methods import check_length, model_of, settings_of, special_tokens_of
from trainer.recipe import FinetuneRecipe


def build(recipe: FinetuneRecipe) -> Job:
    """The pre-trained trunk (or its like with random weights) on the labelled pairs of a collection."""
    start = trained.load(recipe.init_from)
    asked, learned = recipe.method.special_tokens, special_tokens_of(start.recipe.method)
    if asked != learned:
        raise InputError(
            f"method.special_tokens: {asked}, but {recipe.init_from} was trained with {learned}; "
            f"set method.special_tokens={learned}"
        )
    data = pair_data(recipe, start)
    trunk = start.model.trunk
    if recipe.random_weights:
        torch.manual_seed(recipe.seed)
        trunk = build_trunk(settings_of(trunk.config))
    own = asked - 1
    check_length("method.max_query_tokens", recipe.method.max_query_tokens + own, trunk)
    check_length("method.max_document_tokens", recipe.method.max_document_tokens + own, trunk)
    return make_job(recipe, model_of(recipe.method, trunk.train()), data)


if __name__ == "__main__":
    main("trainer.finetune", FinetuneRecipe, build)
