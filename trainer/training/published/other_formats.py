"""Refuse what others publish in forms that are not read: adapters alone, GGUF, ONNX, the native files of a maker."""

from __future__ import annotations

from pathlib import Path

from data_prep.common.errors import InputError
from trainer.training.published.hugging_face import CONFIG, read_keys
from trainer.training.published.settings import ADAPTER

SAFETENSORS = "*.safetensors"
NAME = "name a folder with config.json, tokenizer.json and model.safetensors"
# by the pattern of a file that others have: what it is, where a folder has no weights of Hugging Face's kind
WEIGHTS = {
    "*.gguf": "a model in GGUF, the format of llama.cpp",
    "*.onnx": "a model in ONNX, which is computed and not trained",
    "onnx/*.onnx": "a model in ONNX, which is computed and not trained",
    "openvino_model.xml": "a model of OpenVINO, which is computed and not trained",
    "consolidated.*": "a model in its maker's own format",
    "*.nemo": "a model of NeMo",
}


def refuse_other_formats(path: Path) -> None:
    """Raise InputError where a path has a model in a form that is not read; say which, and what to do.

    Args:
        path: a file, or a folder that may be anything.
    """
    if path.is_file():
        form = next((what for pattern, what in WEIGHTS.items() if path.match(pattern)), "a file")
        raise InputError(f"{path}: is {form}: {NAME}")
    if (path / ADAPTER).is_file():
        base = read_keys(path / ADAPTER).get("base_model_name_or_path")
        raise InputError(
            f"{path / ADAPTER}: adapters are not supported: merge them into their base, {base!r:.200} (peft's "
            "merge_and_unload), save that with its tokenizer, and name its folder"
        )
    if snapshots := sorted(path.glob("snapshots/*/")):
        raise InputError(f"{path}: is a cache of the Hugging Face hub: name a folder in it, {snapshots[-1]}")
    if next(path.glob(SAFETENSORS), None) is None or not (path / CONFIG).is_file():
        for pattern, what in WEIGHTS.items():
            if file := next(iter(sorted(path.glob(pattern))), None):
                raise InputError(f"{file}: is {what}: {NAME}")
