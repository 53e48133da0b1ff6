"""A trained model, taken from a run's newest whole checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from data_prep import tokenizer as tokenizers
from data_prep.errors import InputError
from data_prep.tokenizer import Tokenizer
from models.encoder import TrunkModel, max_positions
from trainer import checkpoint
from trainer.method_keys import Siamese
from trainer.methods import model_of, special_tokens_of, trunk_of
from trainer.recipe import FinetuneRecipe, PretrainRecipe, kind_of
from trainer.recipe import build as build_recipe


@dataclass(frozen=True)
class Trained:
    """A model in fp32 on the CPU, in eval mode, and what it was trained with."""

    model: TrunkModel
    kind: str  # the recipe's method.name: siamese, seed, mlm
    recipe: PretrainRecipe | FinetuneRecipe
    tokenizer: Tokenizer
    checkpoint: Path
    step: int

    @property
    def text_tokens(self) -> int:
        """The longest text, [CLS] and [SEP] included, that the encoder has learned to read."""
        method = self.recipe.method
        if isinstance(method, Siamese):
            return method.max_document_tokens
        if self.model.trains_every_position:
            return max_positions(self.model.trunk) - (special_tokens_of(method) - 1)
        return method.positions


def load(path: Path) -> Trained:
    """The model of a run folder (its newest whole checkpoint) or of one checkpoint folder.

    Raises InputError where there is none, or it is damaged.
    """
    found = _find(path)
    values = yaml.safe_load((found / checkpoint.RECIPE).read_text(encoding="utf-8"))
    kind = values["method"]["name"]
    recipe = build_recipe(kind_of(values), values, str(found / checkpoint.RECIPE))
    settings = json.loads((found / checkpoint.TRUNK).read_text(encoding="utf-8"))
    trunk = trunk_of(settings, str(found / checkpoint.TRUNK))
    model = model_of(recipe.method, trunk)
    _fill(model, found)
    return Trained(
        model=model.eval(),
        kind=kind,
        recipe=recipe,
        tokenizer=tokenizers.load(found / checkpoint.TOKENIZER),
        checkpoint=found,
        step=checkpoint.read_state(found).step,
    )


def _find(path: Path) -> Path:
    if (path / checkpoint.MANIFEST).is_file():
        problem = checkpoint.verify(path)
        if problem:
            raise InputError(problem)
        return path
    found = checkpoint.newest(path)
    if found is None:
        raise InputError(f"{path}: neither a checkpoint nor a run folder with one: train it first")
    return found


def _fill(model: nn.Module, found: Path) -> None:
    weights, parameters = load_file(found / checkpoint.WEIGHTS), dict(model.named_parameters())
    if weights.keys() != parameters.keys():
        odd = sorted(weights.keys() ^ parameters.keys())[0]
        raise InputError(f"{found}: {checkpoint.WEIGHTS} and {checkpoint.RECIPE} do not fit: {odd} is only in one")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
