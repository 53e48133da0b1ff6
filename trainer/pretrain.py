"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import torch

from trainer.data import shard_data
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.methods import check_length, model_of, new_trunk
from trainer.recipe import PretrainRecipe


def build(recipe: PretrainRecipe) -> Job:
    """The recipe's method on its shards, from random weights."""
    data = shard_data(recipe)
    torch.manual_seed(recipe.seed)
    trunk = new_trunk(recipe.trunk, data.tokenizer)
    check_length("method.max_tokens", recipe.method.positions, trunk)
    return make_job(recipe, model_of(recipe.method, trunk), data)


if __name__ == "__main__":
    main("trainer.pretrain", PretrainRecipe, build)
