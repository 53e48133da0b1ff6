"""Read a Hugging Face folder: configuration and safetensors; no code of the folder is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig

from data_prep.common.errors import InputError
from data_prep.common.files import LARGEST_JSON, read_bytes

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def read_config(folder: Path) -> PreTrainedConfig:
    """Read config.json; raise InputError if transformers does not know it."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder / CONFIG}: not the configuration of an encoder ({reason})") from None
    return config


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; raise InputError if it is damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot read the weights ({error}); only safetensors files are read") from None


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
    keys = read_json(path)
    if not isinstance(keys, dict):
        raise InputError(f"{path}: not a JSON object; copy the folder again")
    return keys


def read_json(path: Path) -> Any:
    """Return what a JSON file has; raise InputError if it cannot be read."""
    try:
        return json.loads(read_bytes(path, LARGEST_JSON))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON; copy the folder again") from None
