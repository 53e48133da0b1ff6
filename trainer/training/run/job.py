"""The parts of a run, assembled from its recipe.

Made once, before the loop: model, order of data, held-out data, probe and refresh, and the settings that a resumed run
must have again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.data_prep.tokenizers.tokenizer import SPLIT, TOKENIZER_CONFIG
from deepsiam.models.build_trunk import settings_of
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.base import Base
from deepsiam.trainer.training.checkpoints.load import drop_absent, restore_frozen
from deepsiam.trainer.training.data.opened import Data, HeldOut, resume_invariants
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.compiler import compile_model
from deepsiam.trainer.training.recipe.build import freeze_model
from deepsiam.trainer.training.recipe.schema import AnyRecipe, Recipe
from deepsiam.trainer.training.run.measures import Probe


class Refresh(Protocol):
    """Mines the negatives of the next steps during the run, as `trainer.ranking.while_training.refresh` does."""

    current: int  # the step of the negatives in use

    def step_of(self, step: int) -> int:
        """Return the step of the negatives that the examples after `step` steps use."""

    def is_due(self, step: int) -> bool:
        """Return whether negatives are mined after `step` steps."""

    def make(self, step: int, saved: Path, beat: Callable[[], None]) -> dict[str, dict[str, float]]:
        """Mine with the weights of a checkpoint; all ranks call; return figures about the negatives of each source."""

    def use(self, step: int) -> None:
        """Let the examples use the negatives that belong to a step."""


@dataclass(frozen=True)
class Job:
    """Everything a run needs: a model, the order of its examples, and what is measured and saved with them."""

    recipe: Recipe
    model: TrunkModel
    order: Order
    held_out: Sequence[HeldOut]  # none without a validation
    probe: Probe | None
    refresh: Refresh | None
    sidecar_files: dict[str, bytes]  # small files kept with every checkpoint: recipe, tokenizer, trunk configuration
    resume_invariants: dict[str, Any]  # what must not change when the run is resumed


def make_ready(model: TrunkModel, recipe: AnyRecipe, resume_from: Path | None = None) -> AnyRecipe:
    """Freeze, compile and recompute what a recipe says; frozen weights are those of the checkpoint to resume from.

    Return the recipe with all that `freeze_model` fills in.
    """
    if resume_from:
        drop_absent(model, resume_from)
    recipe = freeze_model(model, recipe)
    if resume_from:
        restore_frozen(model, resume_from)
    if recipe.compile:
        compile_model(model)
    if recipe.activation_checkpointing:
        recompute_layers(model)
    return recipe


def make_job(
    recipe: Recipe,
    model: TrunkModel,
    data: Data,
    probe: Probe | None = None,
    refresh: Refresh | None = None,
    base: Base | None = None,
) -> Job:
    """Assemble a job; raise InputError if its held-out data give no example, or its losses do not suit ZeRO stage 3."""
    for held_out in data.held_out:
        held_out.first()
    sidecar_files = {
        checkpoint.RECIPE: yaml.safe_dump(complete(recipe), sort_keys=False).encode(),
        checkpoint.TOKENIZER: read_bytes(data.tokenizer.path),
        checkpoint.TRUNK: json.dumps(settings_of(model.trunk.config), indent=1).encode(),
    }
    if not data.tokenizer.split_special_tokens:
        sidecar_files[TOKENIZER_CONFIG] = json.dumps({SPLIT: False}).encode()
    if base:
        sidecar_files[checkpoint.BASE] = base.model_dump_json(indent=1).encode()
    config = ds_config.load(recipe.deepspeed)[1]
    state_kind = ds_config.optimizer_state_kind(config)
    methods_differ = any(method != recipe.methods[0] for method in recipe.methods)
    # ranks of stage 3 gather each layer's weights together, in the order of their own backward pass: with other losses
    # at the same time they would wait for ever
    if methods_differ and recipe.data.one_source_per == "micro_batch" and state_kind.endswith("ZeRO-3"):
        raise InputError(
            "data.mix: its sources differ in their method, and the ranks of ZeRO stage 3 must compute the same at the "
            "same time: set data.one_source_per=step, or deepspeed to a configuration of stage 2"
        )
    invariants = resume_invariants(recipe, data)
    invariants |= {"deepspeed": state_kind, "deepspeed file": ds_config.state_layout(config)}
    return Job(recipe, model, data.order, data.held_out, probe, refresh, sidecar_files, invariants)


def complete(recipe: Recipe) -> dict[str, Any]:
    """Return all keys of a recipe, also those of the method that it sets to what a dump leaves out.

    Without them, a run of these keys would take the values of the model that it starts from.
    """
    values = recipe.model_dump(mode="json")
    left_out = recipe.method.model_fields_set - values["method"].keys()
    values["method"] |= {key: getattr(recipe.method, key) for key in sorted(left_out)}
    return values
