"""The parts of a run, built from its recipe once, before the loop, and what a run must be to train here."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import yaml

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.data_prep.tokenizers.tokenizer import SPLIT, TOKENIZER_CONFIG
from deepsiam.models.build_trunk import settings_of
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.checkpoints.base import Base
from deepsiam.trainer.training.checkpoints.load import drop_absent, restore_frozen
from deepsiam.trainer.training.data.opened import Data, resume_invariants
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.compiler import compile_model
from deepsiam.trainer.training.engine.memory import check_memory
from deepsiam.trainer.training.engine.world import device_memory
from deepsiam.trainer.training.recipe.build import freeze_model
from deepsiam.trainer.training.recipe.schema import AnyRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.run.measures import Probe


class Refresh(Protocol):
    """Mines the negatives of the next steps during the run, as `trainer.ranking.while_training.refresh` does."""

    current_step: int  # the step of the negatives in use

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
    """Everything a run needs: a model, its data, and what is measured with them."""

    recipe: Recipe
    model: TrunkModel
    data: Data
    probe: Probe | None = None
    refresh: Refresh | None = None
    base: Base | None = None  # of adapters

    @property
    def order(self) -> Order:
        """The order of its examples."""
        return self.data.order

    @cached_property
    def sidecar_files(self) -> dict[str, bytes]:
        """Small files kept with every checkpoint: recipe, tokenizer, the trunk's configuration."""
        tokenizer = self.data.tokenizer
        files = {
            checkpoint.RECIPE: yaml.safe_dump(complete(self.recipe), sort_keys=False).encode(),
            checkpoint.TOKENIZER: read_bytes(tokenizer.path),
            checkpoint.TRUNK: json.dumps(settings_of(self.model.trunk.config), indent=1).encode(),
        }
        if not tokenizer.split_special_tokens:
            files[TOKENIZER_CONFIG] = json.dumps({SPLIT: False}).encode()
        if self.own_code:
            files[checkpoint.IMPORTS] = json.dumps(self.own_code, indent=1).encode()
        if self.base:
            files[checkpoint.BASE] = self.base.model_dump_json(indent=1).encode()
        return files

    @cached_property
    def own_code(self) -> dict[str, str]:
        """The modules of the user's own that it is trained with, and the SHA-256 of their source."""
        return own_code.modules_of(self.recipe)

    @cached_property
    def resume_invariants(self) -> dict[str, Any]:
        """What must not change when the run is resumed."""
        config = ds_config.load(self.recipe.deepspeed)[1]
        return resume_invariants(self.recipe, self.data) | ds_config.resume_invariants(config)


def check_job(job: Job) -> None:
    """Raise InputError if a job cannot be trained here: for its memory, its held-out data, or its sources' losses."""
    recipe = job.recipe
    if isinstance(recipe, PretrainRecipe):
        check_memory(recipe, job.model, device_memory())
    if job.data.teacher:
        job.data.teacher.require_width(job.model)
    for held_out in job.data.held_out:
        held_out.first()
    methods_differ = any(method != recipe.methods[0] for method in recipe.methods)
    # ranks of stage 3 gather each layer's weights together, in the order of their own backward pass: with other losses
    # at the same time they would wait for ever
    by_micro_batch = methods_differ and recipe.data.one_source_per == "micro_batch"
    if by_micro_batch and job.resume_invariants["deepspeed"].endswith("ZeRO-3"):
        raise InputError(
            "data.mix: its sources differ in their method, and the ranks of ZeRO stage 3 must compute the same at the "
            "same time: set data.one_source_per=step, or deepspeed to a configuration of stage 2"
        )


def make_ready(model: TrunkModel, recipe: AnyRecipe, resume_from: Path | None = None) -> AnyRecipe:
    """Freeze, compile and recompute what a recipe says; return it with all that `freeze_model` fills in."""
    if resume_from:
        drop_absent(model, resume_from)
    recipe = freeze_model(model, recipe)
    if recipe.optimizer.ema and not all(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("optimizer.ema: averages all weights, and this run leaves some as they are: set ema to null")
    if resume_from:
        restore_frozen(model, resume_from)
    if recipe.compile:
        compile_model(model)
    if recipe.activation_checkpointing:
        recompute_layers(model)
    return recipe


def complete(recipe: Recipe) -> dict[str, Any]:
    """Return all keys of a recipe, also those of the method that it sets to what a dump leaves out.

    Without them, a run of these keys would take the values of the model that it starts from.
    """
    values = recipe.model_dump(mode="json")
    left_out = recipe.method.model_fields_set - values["method"].keys()
    values["method"] |= {key: getattr(recipe.method, key) for key in sorted(left_out)}
    return values
