"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import torch

from data_prep import tokenizer as tokenizers
from data_prep.shards import Manifest
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.methods import check_length, model_of, new_trunk, pretrain_batcher
from trainer.recipe import PretrainRecipe
from trainer.sources import ShardSource


def build(recipe: PretrainRecipe) -> Job:
    """The recipe's method on its shards, from random weights."""
    manifest = Manifest.load(recipe.data.shards)
    tokenizer = tokenizers.load(manifest.directory / "tokenizer.json")
    torch.manual_seed(recipe.seed)
    trunk = new_trunk(recipe.trunk, tokenizer)
    check_length("method.max_tokens", recipe.method.max_tokens, trunk)
    batcher = pretrain_batcher(recipe.method, tokenizer)
    model = model_of(recipe.method, trunk)
    return make_job(recipe, model, ShardSource(manifest), batcher, tokenizer, manifest.sha256)


if __name__ == "__main__":
    main("trainer.pretrain", PretrainRecipe, build)
