"""The job of pre-training: what `trainer.pretrain` trains, built from its recipe."""

from pathlib import Path

import torch

from deepsiam.models.config import resize_embeddings
from deepsiam.trainer.training.checkpoints.base import base_of
from deepsiam.trainer.training.checkpoints.load import saved_trunk
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.engine.world import say
from deepsiam.trainer.training.recipe.build import build_model, check_length, new_trunk
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.run.job import Job, make_ready


def build(recipe: PretrainRecipe, resume_from: Path | None = None) -> Job:
    """Make the job of training the recipe's method on its shards, from random weights or a trained encoder.

    To resume, the checkpoint is enough, with the base of its adapters: the engine loads what is trained.
    """
    if recipe.init_from:  # what reads other libraries' folders is imported for runs that name one
        from deepsiam.trainer.training.checkpoints.init_from import copy_heads, load_start
        from deepsiam.trainer.training.checkpoints.start_keys import open_start

        recipe, start = open_start(recipe, resume_from)
    data = shard_data(recipe)
    torch.manual_seed(recipe.seed)  # of new weights: all ranks draw the same
    encoder = None
    if resume_from:
        trunk = saved_trunk(resume_from)
    elif recipe.init_from and start:
        encoder = load_start(recipe, start, data.tokenizer)
        trunk = encoder.trunk
    else:
        trunk = new_trunk(recipe.trunk or {}, data.tokenizer)
    rows = encoder.rows_for(recipe.method) if encoder else ()
    resize_embeddings(recipe.method, trunk, data.tokenizer, rows)
    for key, tokens in recipe.method.input_lengths.items():
        check_length(key, tokens, trunk)
    recipe = recipe.model_copy(update={"method": recipe.method.for_trunk(trunk)})
    model = build_model(recipe.method, trunk)
    if encoder:
        say(copy_heads(encoder, model, recipe.method))
    if getattr(recipe.method.ranking_config, "fits_start", False) and not resume_from:  # else it is in the checkpoint
        from deepsiam.trainer.jobs.fit_start import fit_to_pairs

        say(*fit_to_pairs(recipe, model, data))
    recipe = make_ready(model, recipe, resume_from)
    probe = None
    if recipe.probe:
        from deepsiam.trainer.ranking.while_training.probe import open_probe

        check_length("probe.max_tokens", recipe.probe.max_tokens, trunk)
        probe = open_probe(recipe.probe, data.tokenizer)
    base = base_of(recipe, encoder.path if encoder else None, resume_from)
    return Job(recipe, model, data, probe, base=base)
