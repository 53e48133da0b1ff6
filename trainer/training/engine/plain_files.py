"""Read DeepSpeed's checkpoint files, which are pickles, as plain values and tensors, so that none can run code.

Used when a run resumes, before DeepSpeed reads its files, and for the files themselves. As a command it is DeepSpeed's
conversion of a checkpoint for another number of ranks: `checkpoint.resume` starts it on rank 0, before the first step.
"""

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.utils.tensor_fragment import fragment_address

from deepsiam.data_prep.common.errors import InputError, exit_on_input_error

# the classes in DeepSpeed's files that torch does not know as plain: making one only sets attributes
PLAIN_CLASSES = [
    (int, "deepspeed.runtime.zero.config.ZeroStageEnum"),  # its number will do
    fragment_address,
    LossScaler,
    DynamicLossScaler,
]
SETTINGS = "ds_config"  # the run's own settings, which DeepSpeed saves and does not use again
REMEDY = "resume only from checkpoints that this code has saved"


def check(folder: Path) -> None:
    """Raise InputError, naming the file, unless all of DeepSpeed's files in a folder are plain values and tensors.

    The tensors themselves are not read, so this is quick.
    """
    with plain_values_only():
        for file in sorted(folder.rglob("*.pt")):
            torch.load(file, mmap=True)


@contextmanager
def plain_values_only() -> Iterator[None]:
    """Let torch.load, which DeepSpeed calls in many places, build only plain values, tensors and `PLAIN_CLASSES`.

    It raises InputError, naming the file, for anything else.
    """
    load = torch.load

    def load_plain(file: Any, map_location: Any = None, *, mmap: bool | None = None, **_: Any) -> Any:
        try:
            # torch writes no compressed files; a small one could grow to fill the memory
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in zipfile.ZipFile(file).infolist()):
                raise ValueError("it is compressed")
            values = load(file, map_location=map_location, mmap=mmap, weights_only=True)
            _check_strings(values)
        except OSError:  # a disk's fault, not the file's
            raise
        except Exception as error:  # a damaged pickle can raise any
            name = re.search(r"GLOBAL (\S+)", str(error))
            reason = f"it asks for {name[1]}, which could run code" if name else str(error).partition("\n")[0]
            raise InputError(f"{file}: not a file of DeepSpeed's plain values ({reason}): {REMEDY}") from None
        return values

    registered = torch.serialization.get_safe_globals()  # by torch itself: meshes of devices, for example
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(PLAIN_CLASSES)
    torch.load = load_plain  # type: ignore[assignment]  # with the arguments that DeepSpeed gives
    try:
        yield
    finally:
        torch.load = load
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(registered)


def _check_strings(values: Any) -> None:
    """Raise ValueError for a string that is not a plain name: DeepSpeed makes files with the names of parameters."""
    unchecked, seen_ids = [values], set()  # not recursive: a hostile file may nest deeply, or contain itself
    while unchecked:
        value = unchecked.pop()
        if isinstance(value, str):
            if not re.fullmatch(r"[\w.+:-]*", value, re.ASCII) or set(value) == {"."}:
                raise ValueError(f"{value[:80]!r} is not a name")
        elif isinstance(value, (dict, list, tuple, set)) and id(value) not in seen_ids:
            seen_ids.add(id(value))
            unchecked += value
            if isinstance(value, dict):
                unchecked += (inner for key, inner in value.items() if key != SETTINGS)


if __name__ == "__main__":
    from deepspeed.checkpoint import ds_to_universal

    with exit_on_input_error("conversion"), plain_values_only():
        ds_to_universal.main(ds_to_universal.parse_arguments())
