"""The modules of the user's own code that a run was trained with: imports.json, which most checkpoints lack.

It has the SHA-256 of their source by their names. A module is imported because the user's recipe, DEEPSIAM_IMPORTS or
an installed package names it, never because a checkpoint does.
"""

import json
import sys
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import Sha256, read_json
from deepsiam.registry import VARIABLE, imported
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import ModuleName


def sidecar_files() -> dict[str, bytes]:
    """Return the file of a checkpoint of this process, by its name, if it has imported any such module."""
    modules = imported()
    return {checkpoint.IMPORTS: json.dumps(modules, indent=1).encode()} if modules else {}


def check_continues(resume_from: Path) -> None:
    """Raise InputError if a module that a checkpoint was trained with is not imported; print which have changed."""
    modules = imported()
    for module, sha256 in _read(resume_from).items():
        if module not in modules:
            raise InputError(
                f"{resume_from}: trained with {module}, which is not imported: name it in the recipe's imports"
            )
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
