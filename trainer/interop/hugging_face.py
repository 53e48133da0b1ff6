"""Read a Hugging Face folder: its configuration, and its weights in one safetensors file or several with an index.

No code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.json_file import read_json
from deepsiam.models.build_trunk import REFUSALS, build_trunk, plain_encoder, settings_of
from deepsiam.models.sizes import check_sizes
from deepsiam.trainer.interop.settings import CONFIG

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
AGAIN = "copy the folder again"


def load_hugging_face(folder: Path) -> PreTrainedModel:
    """Load the encoder of a folder, whatever head it was published with; run no code of the folder.

    Raises:
        InputError: a file is missing or damaged, or the weights are not those of the configuration.
    """
    return build_encoder(folder, read_config(folder), read_weights(folder))


def build_encoder(folder: Path, config: PreTrainedConfig, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """Build the encoder of a folder from what was read of it; raise InputError where the two do not fit."""
    with as_input_error(str(folder)):
        return build_trunk(settings_of(config), weights)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return a folder's tensors by their published names; model.safetensors takes precedence, as in transformers.

    Raises:
        InputError: a file is missing or damaged, or a tensor is in two files or in none.
    """
    if not _has_index(folder):
        return read_tensors(folder / WEIGHTS)
    places = _places(folder / INDEX)
    weights: dict[str, Tensor] = {}
    owners: dict[str, str] = {}
    for file in sorted(set(places.values())):
        tensors = read_tensors(folder / file)
        if twice := sorted(tensors.keys() & weights.keys()):
            raise InputError(f"{folder / file}: has {twice[0]}, which is also in {owners[twice[0]]}: which one counts?")
        weights |= tensors
        owners |= dict.fromkeys(tensors, file)
    if lost := sorted(name for name, file in places.items() if owners.get(name) != file):
        raise InputError(f"{folder / places[lost[0]]}: lacks {lost[0]}, which {INDEX} expects there; {AGAIN}")
    return weights


def weight_files(folder: Path) -> list[Path]:
    """Return the files that `read_weights` reads, which may be missing; raise InputError for a damaged index."""
    if not _has_index(folder):
        return [folder / WEIGHTS]
    return [folder / INDEX, *(folder / file for file in sorted(set(_places(folder / INDEX).values())))]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; raise InputError if it is missing or damaged."""
    if not path.is_file():
        raise InputError(
            f"{path}: cannot read the weights (no such file); only safetensors files are read, since others can run "
            "code: save the model again with save_pretrained of transformers"
        )
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot read the weights ({error}): the file is damaged; {AGAIN}") from None


def read_config(folder: Path) -> PreTrainedConfig:
    """Read config.json; raise InputError if transformers has no class for it, or the weights are quantised."""
    path = folder / CONFIG
    keys = read_keys(path, missing=True)
    with as_input_error(str(path)):
        check_sizes(keys.items(), "")
    _refuse_code(path, keys)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, RecursionError, *REFUSALS) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not the configuration of an encoder ({reason})") from None
    if getattr(config, "quantization_config", None):
        raise InputError(f"{path}: quantization_config: its weights are quantised; name a folder with the full weights")
    return config


def _refuse_code(path: Path, keys: Mapping[str, Any]) -> None:
    """Raise InputError where the encoder is a class of the folder's code, and transformers has none of this name."""
    kind = str(keys.get("model_type"))
    config_class = CONFIG_MAPPING[kind] if kind in set(CONFIG_MAPPING) else PreTrainedConfig  # its `get` finds none
    known = {config_class.__name__, getattr(plain_encoder(config_class)[1], "__name__", "")}
    code = keys.get("auto_map")
    for name in ("AutoConfig", "AutoModel"):
        if isinstance(code, dict) and name in code and str(code[name]).rpartition(".")[2] not in known:
            raise InputError(
                f"{path}: auto_map: its encoder is code ({code[name]!s:.80}), which is never run, and transformers has "
                f"no class of this name for model_type {kind!r:.80}: name another folder"
            )


def architecture_of(folder: Path) -> str:
    """Return the name of the class that config.json says the weights are of; "" if it says none."""
    names = read_keys(folder / CONFIG).get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def read_keys(path: Path, *, missing: bool = False) -> dict[str, Any]:
    """Return a JSON object; with `missing` an empty one if the file is absent.

    Raises:
        InputError: it cannot be read, or is not a JSON object.
    """
    if missing and not path.exists():
        return {}
    return read_json(path, dict[str, Any], AGAIN)


def _has_index(folder: Path) -> bool:
    """Return whether the weights are in several files."""
    return not (folder / WEIGHTS).exists() and (folder / INDEX).exists()


def _places(path: Path) -> dict[str, str]:
    """Return the file of each tensor from an index, all of them in the index's folder."""
    try:
        places = read_keys(path)["weight_map"]
        files = set(places.values())
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not an index with a weight_map from tensors to files; {AGAIN}") from None
    for file in sorted(files, key=str):
        if not isinstance(file, str) or Path(file).name != file or Path(file).suffix != Path(WEIGHTS).suffix:
            raise InputError(f"{path}: weight_map: {file!r} is not the name of a safetensors file in its folder")
    if absent := sorted(file for file in files if not (path.parent / file).is_file()):
        raise InputError(f"{path}: {len(absent)} of its {len(files)} files are missing, such as {absent[0]}; {AGAIN}")
    if not files:
        raise InputError(f"{path}: names no file; {AGAIN}")
    return dict(places)
