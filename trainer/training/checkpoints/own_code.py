"""The modules of the user's own code that a run is trained with: imports.json, which most checkpoints lack.

It has the SHA-256 of their source by their names. A module is imported because the user's recipe, DEEPSIAM_IMPORTS or
an installed package names it, never because a checkpoint does.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import Sha256, read_json
from deepsiam.models.layers.ranking_losses import LOSSES
from deepsiam.models.registry import MATCHING, PRETRAINING
from deepsiam.registry import VARIABLE, sha256_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import OPTIMIZERS, ModuleName, PretrainRecipe, Recipe


def modules_of(recipe: Recipe) -> dict[str, str]:
    """Return the SHA-256 of the modules in a recipe's `imports`, and of those that registered what it trains by."""
    methods = PRETRAINING if isinstance(recipe, PretrainRecipe) else MATCHING
    losses = {loss for method in (recipe.method, *recipe.methods) for loss in getattr(method, "losses", ())}
    homes = [methods.homes[recipe.method.name], OPTIMIZERS.homes[recipe.optimizer.name]]
    homes += [LOSSES.homes[loss] for loss in losses if loss in LOSSES]  # a model may have others of its own
    return {module: sha256_of(module) for module in sorted({*recipe.imports, *homes} - {"deepsiam"})}


def check_continues(resume_from: Path, modules: Mapping[str, str]) -> None:
    """Raise InputError if a run lacks a module that its checkpoint was trained with; print which have changed."""
    for module, sha256 in _read(resume_from).items():
        if module not in modules:
            raise InputError(f"{resume_from}: trained with {module}, which is not there now: name it in imports")
        if modules[module] != sha256:
            print(f"{module} has changed since {resume_from.name}: the run continues with what it is now", flush=True)


def remedy(folder: Path) -> str:
    """Return what to do where a checkpoint's recipe names what is unknown here; "" if its own code is all imported."""
    if not (missing := [module for module in _read(folder) if module not in sys.modules]):
        return ""
    return (
        f"; it was trained with {' and '.join(missing)}, which nothing imports unasked: install the package, or set "
        f"{VARIABLE}={','.join(missing)}"
    )


def _read(folder: Path) -> dict[str, str]:
    file = folder / checkpoint.IMPORTS
    return read_json(file, dict[ModuleName, Sha256], checkpoint.REMEDY) if file.exists() else {}
