"""The keys of a recipe's method that come from the folder named in `init_from`, unless the recipe sets them."""

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.hub import continues, local_model, with_commit
from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.dual_encoder import DualEncoderConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import left_out, prompt_remarks, start_keys
from deepsiam.trainer.interop.settings import PAIRS, SPARSE
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import AnyRecipe, FinetuneRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import build, read_one


def open_start(recipe: AnyRecipe, resume_from: Path | None) -> tuple[AnyRecipe, Folder | None]:
    """Open the folder in `init_from`; an address of the hub is downloaded, and names its commit in the recipe returned.

    The recipe has the keys that it does not set from the folder, or from the checkpoint to resume from: no folder then.
    """
    if resume_from or recipe.init_from is None:
        return (with_keys_from_checkpoint(recipe, resume_from) if resume_from else recipe), None
    start = Folder(local_model(recipe.init_from))
    recipe = recipe.model_copy(update={"init_from": with_commit(recipe.init_from, start.path)})
    return with_keys_from_folder(recipe, start), start


def with_keys_from_folder(recipe: AnyRecipe, start: Folder | None = None) -> AnyRecipe:
    """Give the recipe's method the keys that it does not set from `init_from`, to compute what that model computes.

    `start` is that folder, if it is open already. Raise InputError if it is damaged, or its model does not suit ours.
    """
    if recipe.init_from is None:
        return recipe
    return _with(recipe, _keys(start or Folder(Path(recipe.init_from)), recipe.method), recipe.init_from)


def with_keys_from_checkpoint(recipe: AnyRecipe, resume_from: Path) -> AnyRecipe:
    """Give it the same keys, and the commit of an address, from a run's checkpoint: `init_from` is not read again."""
    names = recipe.method.start_keys
    if recipe.init_from is None:
        return recipe
    file = resume_from / checkpoint.RECIPE
    values = read_one(file)
    if continues(str(values.get("init_from")), recipe.init_from):
        recipe = recipe.model_copy(update={"init_from": values["init_from"]})
    saved = values.get("method")
    return _with(recipe, {key: saved[key] for key in names if isinstance(saved, dict) and key in saved}, file)


def start_notes(start: Folder, method: MethodConfig) -> list[str]:
    """Return remarks, one line each, on where training by `method` differs from the model in the folder `start`."""
    return [
        *overridden_keys(start, method),
        *left_out(start, method.ranking_config.folder_kind),
        *prompt_remarks(start, method),
    ]


def overridden_keys(start: Folder, method: MethodConfig) -> list[str]:
    """Return a line for each key of the folder `start` whose value `method` changes, as a recipe writes it.

    The temperature is left out: it changes the training, not what the folder's model computes.
    """
    defaults = method.model_copy()
    defaults.model_fields_set.clear()
    try:
        keys = _keys(start, defaults)
    except InputError:  # what the folder has is not supported, and training does without it
        return []
    return [
        f"{start.path} was trained with method.{key}={_written(value)}, and this run trains with "
        f"{_written(getattr(method, key))}"
        for key, value in keys.items()
        if key != "temperature" and value != getattr(method, key)
    ]


def _written(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False):.80}"


def _with(recipe: AnyRecipe, start_keys: dict[str, Any], source: Path | str) -> AnyRecipe:
    """Give the recipe's method the keys that it does not set."""
    if not start_keys:
        return recipe
    values = recipe.model_dump(exclude_unset=True)
    left_out = recipe.method.model_fields_set - values["method"].keys()  # set to what a dump leaves out
    method = {**start_keys, **values["method"], **{key: getattr(recipe.method, key) for key in left_out}}
    return build(type(recipe), {**values, "method": method}, f"{source} and the recipe")


def _keys(start: Folder, method: MethodConfig) -> dict[str, Any]:
    return _keys_of_run(start.path, method) or start_keys(start, method)


def _keys_of_run(start: Path, method: MethodConfig) -> dict[str, Any]:
    """Return a run's keys for reading and comparing texts if its model makes vectors, else only its prompts."""
    names = set(method.start_keys) & set(SiameseConfig.start_keys) - method.model_fields_set
    if method.folder_kind in (SPARSE, PAIRS):
        names -= {"pooling"}  # of terms, or of pairs, not of texts
    recipes = [folder / checkpoint.RECIPE for folder in (start, *checkpoint.newest_first(start))]
    recipe = next(filter(Path.is_file, recipes), None)
    if not names or recipe is None:
        return {}
    values = read_one(recipe)
    keys = values.get("method")
    if not isinstance(keys, dict):  # another tool's file
        return {}
    if kind_of(values) is FinetuneRecipe and keys.get("name") != "siamese":
        names &= set(DualEncoderConfig.start_keys)
    if "similarity" in method.model_fields_set and getattr(method, "similarity", None) != keys.get("similarity"):
        names -= {"temperature"}  # it suits one similarity
    return {key: value for key, value in keys.items() if key in names}
