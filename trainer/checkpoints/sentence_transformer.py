"""Read a sentence-transformers folder: where its encoder is, and how it computes and compares embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_prep.common.errors import InputError
from data_prep.common.files import LARGEST_JSON, read_bytes
from models.matching.siamese import SiameseConfig
from trainer.recipe.schema import FinetuneRecipe
from trainer.recipe.yaml_file import build

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"  # file of the encoder's own module
POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}  # the library's name: ours
SWITCH = "pooling_mode_"  # before the name of a pooling, in older releases
SHORTEST = 3  # tokens of a text that has one word
TEMPERATURE = 0.05  # 1 / 20, the scale of the library's losses for cosine similarities


def is_sentence_transformer(folder: Path) -> bool:
    """Return whether a folder is a sentence-transformers folder."""
    return (folder / MODULES).is_file()


def modules_of(folder: Path) -> dict[str, Path]:
    """Return the folder of each module, by the module's class: Transformer, which is the encoder, Pooling, Dense, ...

    Raises:
        InputError: modules.json is damaged, or has no encoder.
    """
    path = folder / MODULES
    try:
        modules = {str(module["type"]).rpartition(".")[2]: folder / module["path"] for module in _read(path)}
    except (KeyError, TypeError):
        raise InputError(f"{path}: not a list of modules with type and path; copy the folder again") from None
    if "Transformer" not in modules:
        raise InputError(f"{path}: has no Transformer module: name the folder of an encoder instead")
    return modules


def read_modules(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the encoder's folder, and the matching-method keys that make it compare texts like the folder's model.

    Raises:
        InputError: a file is damaged, or the model does more than pool and normalise.
    """
    modules = modules_of(folder)
    if "Pooling" not in modules:
        raise InputError(f"{folder / MODULES}: has no Pooling module, which gives a text one vector: use another")
    if others := modules.keys() - {"Transformer", "Pooling", "Normalize"}:
        raise InputError(
            f"{folder / MODULES}: has a {min(others)} module, and only pooling and normalising are supported"
        )
    keys: dict[str, Any] = {"pooling": _pooling(modules["Pooling"] / "config.json")}
    if "Normalize" in modules or _similarity(folder) == "cosine":
        keys |= {"similarity": "cosine", "temperature": TEMPERATURE}
    else:
        keys["similarity"] = "dot"
    return modules["Transformer"], keys


def longest_text(encoder: Path) -> int | None:
    """Return the text length in tokens that an encoder's folder states, [CLS] and [SEP] included; None if absent."""
    path = encoder / TRANSFORMER
    tokens = _read_keys(path).get("max_seq_length") if path.is_file() else None
    if tokens is not None and (not isinstance(tokens, int) or tokens < SHORTEST):
        raise InputError(f"{path}: max_seq_length is {tokens!r}, not a number of tokens from {SHORTEST}")
    return tokens


def refuse_prompt(folder: Path) -> None:
    """Raise InputError where the library puts a prompt before every text: a collection's tokens do not have it."""
    path = folder / SETTINGS
    settings = _read_keys(path) if path.is_file() else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if prompt:
        raise InputError(
            f"{path}: puts {prompt!r} before every text by default (default_prompt_name), which is not supported: "
            "set it to null to rank without, or fine-tune the encoder (init_from)"
        )


def take_over(recipe: FinetuneRecipe) -> FinetuneRecipe:
    """Take a Siamese network's keys that a recipe does not set from the folder of one that it starts from.

    Other models have neither the folder's pooling nor its similarity.

    Raises:
        InputError: the folder is damaged, or does more than pool and normalise, or does not suit the recipe's keys.
    """
    start, method = recipe.init_from, recipe.method
    if start is None or not isinstance(method, SiameseConfig) or not is_sentence_transformer(start):
        return recipe
    if "Pooling" not in modules_of(start):  # a ColBERT
        return recipe
    _, taken = read_modules(start)
    if "similarity" in method.model_fields_set:  # a temperature suits one similarity
        taken.pop("temperature", None)
    values = recipe.model_dump(exclude_unset=True)
    return build(FinetuneRecipe, {**values, "method": {**taken, **values["method"]}}, f"{start} and the recipe")


def _pooling(path: Path) -> str:
    """Return our name of a pooling; its configuration names it, or in older releases has one switch per pooling."""
    config = _read_keys(path)
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else list(named or [])
    named_so = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    on = [key.removeprefix(SWITCH) for key, value in config.items() if key.startswith(SWITCH) and value]
    modes = modes or [named_so.get(name, name) for name in on]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(f"{path}: its pooling is {' and '.join(modes) or 'none'}, not one of {', '.join(POOLINGS)}")
    return POOLINGS[modes[0]]


def _similarity(folder: Path) -> str:
    """Return the folder's similarity, dot or cosine; the library's default is cosine."""
    if not (folder / SETTINGS).is_file():
        return "cosine"
    name = _read_keys(folder / SETTINGS).get("similarity_fn_name") or "cosine"
    if name not in ("cosine", "dot"):
        raise InputError(f"{folder / SETTINGS}: its similarity is {name}, not cosine or dot")
    return str(name)


def _read_keys(path: Path) -> dict[str, Any]:
    keys = _read(path)
    if not isinstance(keys, dict):
        raise InputError(f"{path}: not a JSON object; copy the folder again")
    return keys


def _read(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path, LARGEST_JSON))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON; copy the folder again") from None
