"""The parts of a run, assembled from its recipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from data_prep.common.files import read_bytes
from data_prep.tokenizers.tokenizer import CONFIG, SPLIT
from models.trunk import TrunkModel
from trainer.checkpoints import checkpoint
from trainer.data.group_source import GroupSource
from trainer.data.open_data import Data, resume_invariants
from trainer.data.order import Order
from trainer.engine import ds_config
from trainer.engine.world import World
from trainer.recipe.build import settings_of
from trainer.recipe.schema import FinetuneRecipe, Recipe
from trainer.run.probe import Probe
from trainer.run.refresh import Refresh
from trainer.run.validation import Validation


@dataclass(frozen=True)
class Job:
    """Everything a run needs: a model, the order of its examples, and what is measured and saved with them."""

    recipe: Recipe
    model: TrunkModel
    order: Order
    validation: Validation | None
    probe: Probe | None
    refresh: Refresh | None
    sidecar_files: dict[str, bytes]  # small files kept with every checkpoint: recipe, tokenizer, trunk configuration
    resume_invariants: dict[str, Any]  # what must not change when the run is resumed


def make_job(recipe: Recipe, model: TrunkModel, data: Data, probe: Probe | None = None) -> Job:
    """Assemble a job; raise SharedError if its held-out data give no example."""
    validation = None
    if data.held_out and recipe.validation:
        data.held_out.first()
        validation = Validation(data.held_out, recipe.validation.every)
    sidecar_files = {
        checkpoint.RECIPE: yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).encode(),
        checkpoint.TOKENIZER: read_bytes(data.tokenizer.path),
        checkpoint.TRUNK: json.dumps(settings_of(model.trunk.config), indent=1).encode(),
    }
    if not data.tokenizer.split_special_tokens:
        sidecar_files[CONFIG] = json.dumps({SPLIT: False}).encode()
    states = ds_config.states(ds_config.load(recipe.deepspeed)[1])
    invariants = resume_invariants(recipe, data) | {"deepspeed": states}
    refresh = None
    if isinstance(recipe, FinetuneRecipe) and recipe.refresh:
        (lanes,) = data.order.sources.values()
        assert isinstance(lanes.source, GroupSource)
        refresh = Refresh(recipe.refresh, lanes.source, recipe.run, World.from_environment())
    return Job(recipe, model, data.order, validation, probe, refresh, sidecar_files, invariants)
