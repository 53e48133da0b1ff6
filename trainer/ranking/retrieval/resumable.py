"""The work folder of a long command, beside its result: what is done stays there, and the command goes on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, read_bytes, whole_file

MADE_OF = "made_of.json"


def open_work_folder(folder: Path, made_of: dict[str, Any], inputs: str) -> None:
    """Start a work folder, or continue it if it was made from the same inputs; raise InputError if from others.

    `inputs` names the inputs in the message.
    """
    content = json.dumps(made_of).encode()
    if folder.exists() and (not (folder / MADE_OF).is_file() or read_bytes(folder / MADE_OF) != content):
        raise InputError(f"{folder}: was made from another {inputs}: remove it, or name another --out")
    make_directory(folder)
    with whole_file(folder / MADE_OF) as file:
        file.write(content)
