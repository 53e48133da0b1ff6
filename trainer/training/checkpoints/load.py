"""Load a trained model from a run's newest intact checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import read_json
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.adapters import Adapters
from deepsiam.models.causality import is_causal
from deepsiam.models.trunk import TrunkModel, make_bidirectional
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.checkpoints.base import read_base
from deepsiam.trainer.training.recipe.build import adapt_model, build_model, trunk_of
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import build as build_recipe
from deepsiam.trainer.training.recipe.yaml_file import read_one


@dataclass(frozen=True)
class TrainedModel(LoadedModel):
    """A model of a run."""

    recipe: PretrainRecipe | FinetuneRecipe
    step: int


def load_trained(path: Path) -> TrainedModel:
    """Load the model of a run folder (its newest intact checkpoint) or of one checkpoint folder; merge adapters.

    Raise InputError if `path` has no checkpoint or only damaged ones, or the base of its adapters is not what it was.
    """
    folder = checkpoint.find(path)
    recipe = recipe_of(folder)
    model = build_model(recipe.method, saved_trunk(folder))
    drop_absent(model, folder)  # before the weights, which must match by name
    trained = recipe.optimizer.train
    adapted = adapt_model(model, trained, recipe.method) if isinstance(trained, Adapters) else []
    _copy_weights(folder, model)
    for encoder in adapted:  # merged, so that whatever uses or exports the model finds a plain encoder
        encoder.merge_and_unload().requires_grad_(True)
        model.from_base = frozenset()
    return TrainedModel(
        model=model.eval(),
        method=recipe.method.ranking_config,
        tokenizer=tokenizers.load(folder / checkpoint.TOKENIZER),
        checkpoint=folder,
        recipe=recipe,
        step=checkpoint.read_state(folder).step,
    )


def recipe_of(folder: Path) -> PretrainRecipe | FinetuneRecipe:
    """Read the recipe of a checkpoint; import nothing that it names."""
    values = read_one(folder / checkpoint.RECIPE)
    try:
        return build_recipe(kind_of(values), values, str(folder / checkpoint.RECIPE))
    except InputError as error:
        if remedy := own_code.remedy(folder):
            raise InputError(f"{error}{remedy}") from None
        raise


def saved_trunk(folder: Path) -> PreTrainedModel:
    """Build the trunk of a checkpoint with random weights, or with those of the base of its adapters, in fp32."""
    settings = read_json(folder / checkpoint.TRUNK, dict[str, Any], checkpoint.REMEDY)
    base = read_base(folder)
    if base is None:
        return trunk_of(settings, str(folder / checkpoint.TRUNK))
    trunk = _base_trunk(base.check())
    if trunk.config.vocab_size != (rows := settings.get("vocab_size")):
        trunk.resize_token_embeddings(rows, mean_resizing=False)
    if settings.get("is_causal") is False and is_causal(trunk):
        make_bidirectional(trunk)
    return trunk


def _base_trunk(folder: Path) -> PreTrainedModel:
    """Load the encoder that adapters were trained for, of a published folder or of a run."""
    from deepsiam.trainer.interop.folder import Folder  # a run without adapters reads no folder
    from deepsiam.trainer.interop.settings import CONFIG

    published = Folder(folder)
    is_run = not (published.encoder / CONFIG).is_file()
    return load_trained(folder).model.trunk.train() if is_run else published.trunk()


def drop_absent(model: TrunkModel, folder: Path) -> None:
    """Remove from a model those of its `newer` parameters that its checkpoint was trained without."""
    for name in model.newer & dict(model.named_parameters()).keys():
        with safe_open(folder / checkpoint.WEIGHTS, "pt") as file:
            if name not in {*file.keys()}:
                owner, _, parameter = name.rpartition(".")
                model.get_submodule(owner).register_parameter(parameter, None)


def restore_frozen(model: TrunkModel, folder: Path) -> None:
    """Copy a checkpoint's weights into a model with frozen parameters: DeepSpeed may restore only what it trains."""
    if not all(parameter.requires_grad for parameter in model.parameters()):
        _copy_weights(folder, model)


def _copy_weights(folder: Path, model: TrunkModel) -> None:
    """Copy a checkpoint's weights into a model; of a model with adapters, the frozen weights may be missing."""
    from deepsiam.trainer.interop.folder import read_tensors  # a run that begins reads none

    file = folder / checkpoint.WEIGHTS
    weights, parameters = read_tensors(file), dict(model.named_parameters())
    model.from_base -= weights.keys()  # a checkpoint may have more than adapters, such as new rows of tokens
    if weights.keys() != parameters.keys() - model.from_base:
        odd = sorted(weights.keys() ^ (parameters.keys() - model.from_base))[0]
        raise InputError(f"{folder}: {checkpoint.WEIGHTS} and {checkpoint.RECIPE} do not match: {odd} is only in one")
    with torch.no_grad():
        for name, tensor in weights.items():
            stored, shape = list(tensor.shape), list(parameters[name].shape)
            if stored != shape:
                raise InputError(f"{file}: {name} is {stored}, {checkpoint.TRUNK} has {shape}; {checkpoint.REMEDY}")
            if not tensor.isfinite().all():
                raise InputError(f"{file}: {name} has numbers that are not finite; {checkpoint.REMEDY}")
            parameters[name].copy_(tensor)
