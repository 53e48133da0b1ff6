"""The base of a run's adapters: an encoder that their checkpoints name, with its SHA-256, instead of containing it."""

import hashlib
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.hub import is_address, local_model
from deepsiam.data_prep.common.json_file import Record, Sha256, read_json
from deepsiam.models.adapters import Adapters
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import Recipe


class Base(Record):
    """The content of base.json."""

    folder: str  # of Hugging Face, of sentence-transformers, or a checkpoint; or the hub's address, with a commit
    sha256: Sha256  # of its configuration and weights

    def check(self) -> Path:
        """Return the folder; raise InputError if it is missing or has changed."""
        folder = local_model(self.folder)
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing, and a run's adapters need this encoder: restore it there")
        if sha256_of_encoder(folder) != self.sha256:
            raise InputError(f"{folder}: has changed since adapters were trained for this encoder: restore it")
        return folder


def base_of(recipe: Recipe, start: Path | None, resume_from: Path | None) -> Base | None:
    """Return the base of a recipe's adapters: `start`, or that of a checkpoint; None for a run without adapters."""
    if start and isinstance(recipe.optimizer.train, Adapters):
        location = recipe.init_from if is_address(str(recipe.init_from)) else start
        return Base(folder=str(location), sha256=sha256_of_encoder(start))
    return read_base(resume_from) if resume_from else None


def read_base(folder: Path) -> Base | None:
    """Return the base that a checkpoint names; None if its weights are complete."""
    path = folder / checkpoint.BASE
    return read_json(path, Base, checkpoint.REMEDY) if path.exists() else None


def sha256_of_encoder(folder: Path) -> str:
    """Return the SHA-256 of what an encoder's folder or a checkpoint has; raise InputError if a file is missing."""
    from deepsiam.trainer.interop.folder import Folder  # a run without adapters reads no folder
    from deepsiam.trainer.interop.settings import CONFIG

    published = Folder(folder)
    if (published.encoder / CONFIG).is_file():
        files = [published.encoder / CONFIG, *published.weight_files]
    else:
        files = [folder / checkpoint.MANIFEST]  # it has the SHA-256 of all others
    lines = "".join(f"{sha256_of(file)} {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()
