"""The modules of a sentence-transformers folder, as its modules.json lists them: the first holds the encoder."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import read_json
from deepsiam.trainer.interop.hugging_face import AGAIN, read_keys
from deepsiam.trainer.interop.settings import CONFIG, MODULES

PACKAGES = ("sentence_transformers.", "pylate.")  # whose modules are known; others are code of the folder
MASKED_LM = "MLMTransformer"  # a sparse model's encoder, with its head
TWO_SIDED = ("Router", "Asym")


class Module(NamedTuple):
    """A step of a model: its class, with the package if it is not the library's, and its folder."""

    kind: str
    folder: Path


def is_sentence_transformer(folder: Path) -> bool:
    """Return whether a folder is a sentence-transformers folder."""
    return (folder / MODULES).is_file()


def modules_of(folder: Path) -> dict[str, Path]:
    """Return the folder of each module, by the module's class: Transformer, which is the encoder, Pooling, Dense, ...

    Raises:
        InputError: modules.json is damaged, or has no encoder.
    """
    modules = dict(modules_in_order(folder))
    if "Transformer" not in modules:
        first = next(iter(modules), "")
        encoders = sorted(str(path.parent) for path in folder.glob(f"*/{CONFIG}") if is_encoder(path))
        raise InputError(
            f"{folder / MODULES}: has no Transformer module"
            + (f", but a {first}, whose sides have modules of their own" if first in TWO_SIDED else "")
            + f": name the folder of an encoder instead{', such as ' + encoders[0] if encoders else ''}"
        )
    return modules


def is_encoder(config: Path) -> bool:
    """Return whether a config.json is that of an encoder of Hugging Face, and not of a module."""
    return "model_type" in read_keys(config)


def encoder_of(folder: Path) -> Path:
    """Return the folder of a sentence-transformers folder's encoder; any other folder is its encoder's own."""
    return modules_of(folder)["Transformer"] if is_sentence_transformer(folder) else folder


def modules_in_order(folder: Path) -> list[Module]:
    """Return the modules in their order."""
    path, modules = folder / MODULES, []
    try:
        for module in read_json(path, list[Any], AGAIN):
            place = PurePath(module["path"])
            if place.is_absolute() or ".." in place.parts:
                raise InputError(f"{path}: path is {module['path']!r:.80}, outside of the folder")
            kind = str(module["type"])
            kind = kind.rpartition(".")[2] if kind.startswith(PACKAGES) else kind
            modules.append(Module("Transformer" if kind == MASKED_LM else kind, folder / place))
    except (KeyError, TypeError):
        raise InputError(f"{path}: not a list of modules with type and path; copy the folder again") from None
    return modules
