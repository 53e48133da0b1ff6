"""Load a trained model from a run's newest intact checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from data_prep.common.errors import InputError
from data_prep.common.json_file import read_json
from data_prep.tokenizers import tokenizer as tokenizers
from data_prep.tokenizers.tokenizer import Tokenizer
from models.config import MatchingConfig, MethodConfig
from models.trunk import TrunkModel, max_positions
from trainer.training.checkpoints import checkpoint
from trainer.training.published.hugging_face import read_tensors
from trainer.training.recipe.build import build_model, trunk_of
from trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from trainer.training.recipe.yaml_file import build as build_recipe
from trainer.training.recipe.yaml_file import read_one


@dataclass(frozen=True)
class LoadedModel:
    """A model in fp32 on the CPU, in eval mode, with its method's keys and its tokenizer."""

    model: TrunkModel
    method: MethodConfig
    tokenizer: Tokenizer
    checkpoint: Path  # or the folder of a published model
    classes: tuple[str, ...] = field(default=(), kw_only=True)  # of a published model's logits, in order, if it says

    @property
    def kind(self) -> str:
        """The method's name: siamese, seed, mlm."""
        return self.method.name


@dataclass(frozen=True)
class TrainedModel(LoadedModel):
    """A model of a run."""

    recipe: PretrainRecipe | FinetuneRecipe
    step: int

    @property
    def text_tokens(self) -> int:
        """The longest text that the encoder was trained on, in tokens, [CLS] and [SEP] included."""
        method = self.recipe.method
        if isinstance(method, MatchingConfig):
            return method.max_document_tokens
        if self.model.trains_every_position:
            return max_positions(self.model.trunk) - method.added_tokens
        return method.positions


def load_trained(path: Path) -> TrainedModel:
    """Load the model of a run folder (its newest intact checkpoint) or of one checkpoint folder.

    Raise InputError if `path` has no checkpoint or only damaged ones.
    """
    folder = _find(path)
    values = read_one(folder / checkpoint.RECIPE)
    recipe = build_recipe(kind_of(values), values, str(folder / checkpoint.RECIPE))
    model = build_model(recipe.method, saved_trunk(folder))
    _copy_weights(folder, model)
    return TrainedModel(
        model=model.eval(),
        method=recipe.method,
        tokenizer=tokenizers.load(folder / checkpoint.TOKENIZER),
        checkpoint=folder,
        recipe=recipe,
        step=checkpoint.read_state(folder).step,
    )


def saved_trunk(folder: Path) -> PreTrainedModel:
    """Build the trunk of a checkpoint with random weights, in fp32: the checkpoint has its configuration."""
    settings = read_json(folder / checkpoint.TRUNK, dict[str, Any], checkpoint.REMEDY)
    return trunk_of(settings, str(folder / checkpoint.TRUNK))


def restore_frozen(model: TrunkModel, folder: Path) -> None:
    """Copy a checkpoint's weights into a model with frozen parameters: DeepSpeed may restore only what it trains."""
    if not all(parameter.requires_grad for parameter in model.parameters()):
        _copy_weights(folder, model)


def _find(path: Path) -> Path:
    has_manifest = (path / checkpoint.MANIFEST).is_file()
    if has_manifest and any((path / name).is_file() for name in (checkpoint.WEIGHTS, checkpoint.STATE)):
        problem = checkpoint.verify(path)
        if problem:
            raise InputError(problem)
        return path
    newest = checkpoint.newest(path)
    if newest is None:
        what = ", but perhaps shards, a collection or an index: name a run" if has_manifest else ": train it first"
        raise InputError(f"{path}: neither a checkpoint nor a run folder with one{what}")
    return newest


def _copy_weights(folder: Path, model: nn.Module) -> None:
    file = folder / checkpoint.WEIGHTS
    weights, parameters = read_tensors(file), dict(model.named_parameters())
    if weights.keys() != parameters.keys():
        odd = sorted(weights.keys() ^ parameters.keys())[0]
        raise InputError(f"{folder}: {checkpoint.WEIGHTS} and {checkpoint.RECIPE} do not match: {odd} is only in one")
    with torch.no_grad():
        for name, parameter in parameters.items():
            stored, expected = list(weights[name].shape), list(parameter.shape)
            if stored != expected:
                raise InputError(f"{file}: {name} is {stored}, {checkpoint.TRUNK} has {expected}; {checkpoint.REMEDY}")
            if not weights[name].isfinite().all():
                raise InputError(f"{file}: {name} has numbers that are not finite; {checkpoint.REMEDY}")
            parameter.copy_(weights[name])
