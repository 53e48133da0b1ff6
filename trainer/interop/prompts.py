"""The prompts of a sentence-transformers folder: what the library puts before queries and documents by default."""

from __future__ import annotations

from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.config import MethodConfig, Side
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.settings import CONFIG, SETTINGS

# the names of each side's prompt in the library, the first of which counts that has a text
NAMES: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


def read_prompts(folder: Folder) -> dict[Side, str]:
    """Return the prompts of a folder's settings file: those of each side's names, or else the default one.

    Raises:
        InputError: a prompt is not a text, or the default one is none of them.
    """
    path, settings = folder.path / SETTINGS, folder.settings
    prompts: Any = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text or "", str) for text in prompts.values()):
        raise InputError(f"{path}: prompts is {prompts!r:.80}, not a table of texts; copy the folder again")
    default = settings.get("default_prompt_name")
    if default is not None and not (isinstance(default, str) and default in prompts):
        raise InputError(f"{path}: default_prompt_name is {default!r:.80}, which is not one of its prompts")
    texts: dict[Side, str] = {}
    for side, names in NAMES.items():
        names_of_others = [
            name for other_side, other_names in NAMES.items() if other_side != side for name in other_names
        ]
        candidates = [prompts[name] or "" for name in names if name in prompts]
        if not candidates and default is not None and default not in names_of_others:
            candidates = [prompts[default] or ""]
        if text := next(filter(None, candidates), ""):
            texts[side] = text
    return texts


def prompts_of(folder: Folder, pooling: str, *, to_rank: bool) -> dict[str, Any]:
    """Return the keys of a model with a pooling that put a folder's prompts before texts.

    Raises:
        InputError: a prompt is not a text, or to rank, the library pools another state than the first because of it.
    """
    prompts = read_prompts(folder)
    keys: dict[str, Any] = {f"{side}_prompt": text for side, text in prompts.items()}
    if not prompts or "Pooling" not in folder.modules:
        return keys
    path = folder.modules["Pooling"] / CONFIG
    included = folder.keys(path).get("include_prompt", True)
    if not isinstance(included, bool):
        raise InputError(f"{path}: include_prompt is {included!r:.80}, not true or false")
    if not included and pooling == "cls" and to_rank:
        raise InputError(f"{path}: include_prompt is false, so the first state is not pooled, which is not supported")
    return keys if included or pooling != "mean" else {**keys, "prompt_in_pooling": False}


def refuse_prompts(folder: Folder) -> None:
    """Raise InputError where the library puts a prompt before the texts of a cross-encoder."""
    path, settings = folder.path / SETTINGS, folder.settings
    prompts, default = settings.get("prompts"), settings.get("default_prompt_name")
    if isinstance(prompts, dict) and isinstance(default, str) and (text := prompts.get(default)):
        raise InputError(
            f"{path}: puts {text!r:.80} before every text by default (default_prompt_name), which is not supported for "
            "a cross-encoder: set it to null to rank without"
        )


def keys_of(start: Folder, method: MethodConfig, pooling: str) -> dict[str, Any]:
    """Return the prompts that a model with a pooling takes from a sentence-transformers folder; none of others.

    Raises:
        InputError: the folder is damaged, or a prompt is not a text.
    """
    keys = prompts_of(start, pooling, to_rank=False) if start.has_modules else {}
    if not getattr(method, "encodes_queries", True):  # nothing reads them
        keys.pop("query_prompt", None)
    return keys
