"""Say what to do with a folder that has only the files of an older kind of tokenizer."""

from pathlib import Path

from data_prep.common.errors import InputError

OLDER = ("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.tiktoken", "tekken.json")  # files of other tokenizers


def require_file(path: Path) -> None:
    """Raise InputError where a published folder has only the files of an older kind of tokenizer."""
    if path.exists():
        return
    folder = path.parent
    if older := sorted(file.name for pattern in OLDER for file in folder.glob(pattern)):
        raise InputError(
            f"{path}: is missing, and {', '.join(older)} of an older tokenizer is not read: let transformers make it: "
            f"python -c \"from transformers import AutoTokenizer as T; T.from_pretrained('{folder}')"
            f".save_pretrained('{folder}')\""
        )
