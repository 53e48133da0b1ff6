"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

import os

import torch

from trainer.data import shard_data
from trainer.launch import main, make_job
from trainer.loop import Job
from trainer.memory import check_memory
from trainer.methods import check_length, make_room, model_of, new_trunk, vocabulary_of
from trainer.probe import open_probe
from trainer.recipe import PretrainRecipe
from trainer.start import start_from


def build(recipe: PretrainRecipe) -> Job:
    """The recipe's method on its shards, from random weights or those of an encoder that there is."""
    data = shard_data(recipe)
    torch.manual_seed(recipe.seed)
    start = start_from(recipe.init_from, data.tokenizer) if recipe.init_from else None
    trunk = start.trunk if start else new_trunk(recipe.trunk or {}, data.tokenizer)
    make_room(recipe.method, trunk, data.tokenizer)
    lengths = [name for name in ("max_tokens", "max_query_tokens", "sequence_tokens") if hasattr(recipe.method, name)]
    key = max(lengths, key=lambda name: getattr(recipe.method, name))
    check_length(f"method.{key}", recipe.method.positions, trunk)
    model = model_of(recipe.method, trunk)
    check_memory(recipe, model)
    if start:
        said = start.fill(model)
        if os.environ.get("RANK", "0") == "0":
            print(said, flush=True)
    probe = None
    if recipe.probe:
        check_length("probe.max_tokens", recipe.probe.max_tokens, trunk)
        probe = open_probe(recipe.probe, data.tokenizer.fingerprint, vocabulary_of(data.tokenizer))
    return make_job(recipe, model, data, probe)


if __name__ == "__main__":
    main("trainer.pretrain", PretrainRecipe, build)
