"""Refuse what others publish in forms that are not read: adapters alone, GGUF, ONNX, a maker's own files, vocab.txt."""

from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import read_json

CONFIG, ADAPTER, SAFETENSORS = "config.json", "adapter_config.json", "*.safetensors"
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
OLDER = ("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.tiktoken", "tekken.json")  # files of other tokenizers


def refuse_other_formats(path: Path) -> None:
    """Raise InputError where a file or folder has a model in a form that is not read; say which, and what to do."""
    if path.is_file():
        raise InputError(f"{path}: is {_form(path) or 'a file'}: {NAME}")
    if (path / ADAPTER).is_file():
        base = read_json(path / ADAPTER, dict[str, Any], "copy the folder again").get("base_model_name_or_path")
        raise InputError(
            f"{path / ADAPTER}: adapters are not supported: merge them into their base, {base!r:.200} (peft's "
            "merge_and_unload), save that with its tokenizer, and name its folder"
        )
    if snapshots := sorted(path.glob("snapshots/*/")):
        raise InputError(f"{path}: is a cache of the Hugging Face hub: name a folder in it, {snapshots[-1]}")
    if next(path.glob(SAFETENSORS), None) is None or not (path / CONFIG).is_file():
        for pattern, description in WEIGHTS.items():
            if file := next(iter(sorted(path.glob(pattern))), None):
                raise InputError(f"{file}: is {description}: {NAME}")


def require_tokenizer(path: Path) -> None:
    """Raise InputError for a model in place of a tokenizer.json, or for what is not read where that is missing."""
    if path.is_file() and _form(path):
        refuse_other_formats(path)
    if path.exists() or path.name != "tokenizer.json":
        return
    folder = path.parent
    if older := sorted(file.name for pattern in OLDER for file in folder.glob(pattern)):
        raise InputError(
            f"{path}: is missing, and {', '.join(older)} of an older tokenizer is not read: let transformers make it: "
            f"python -c \"from transformers import AutoTokenizer as T; T.from_pretrained('{folder}')"
            f".save_pretrained('{folder}')\""
        )
    refuse_other_formats(folder)


def _form(path: Path) -> str | None:
    return next((description for pattern, description in WEIGHTS.items() if path.match(pattern)), None)
