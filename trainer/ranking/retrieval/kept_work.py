"""A folder beside the result of a long command, which keeps what is done: the command resumes where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, read_bytes, whole_file

MADE_OF = "made_of.json"


def begin_or_resume(folder: Path, made_of: dict[str, Any], what: str) -> None:
    """Begin a folder, or resume one that was made of the same; raise InputError if it was not.

    `what` names the inputs in the message.
    """
    content = json.dumps(made_of).encode()
    if folder.exists() and (not (folder / MADE_OF).is_file() or read_bytes(folder / MADE_OF) != content):
        raise InputError(f"{folder}: is of another {what}: remove it, or name another --out")
    make_directory(folder)
    with whole_file(folder / MADE_OF) as file:
        file.write(content)
