"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import os

import torch

from trainer.data import shard_data
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.methods import check_length, model_of, new_trunk
from trainer.recipe import PretrainRecipe
from trainer.start import start_from


def build(recipe: PretrainRecipe) -> Job:
    """The recipe's method on its shards, from random weights or those of an encoder that there is."""
    data = shard_data(recipe)
    torch.manual_seed(recipe.seed)
    start = start_from(recipe.init_from, data.tokenizer) if recipe.init_from else None
    trunk = start.trunk if start else new_trunk(recipe.trunk or {}, data.tokenizer)
    check_length("method.max_tokens", recipe.method.positions, trunk)
    model = model_of(recipe.method, trunk)
    if start:
        said = start.fill(model)
        if os.environ.get("RANK", "0") == "0":
            print(said, flush=True)
    return make_job(recipe, model, data)


if __name__ == "__main__":
    main("trainer.pretrain", PretrainRecipe, build)
