"""The documents that a preparation leaves out, with the reasons, as JSON lines: `--rejected FILE`.

Each task writes them next to its result, so that both survive an interruption; at the end all are joined in FILE, in
the order of the input and of the passes.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from deepsiam.data_prep.common.files import blocks, whole_file, write_bytes
from deepsiam.data_prep.sources.document import Document

SUFFIX = ".rejected"


class Rejected:
    """What one task leaves out; nothing is kept unless it is `enabled`."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.lines: list[str] = []

    def add(self, stage: str, reason: str, where: str = "", document: Document | None = None) -> None:
        """Add a record by its place in the input, or a document; `stage` is the stage that it did not pass."""
        if not self.enabled:
            return
        line = {"stage": stage, "reason": reason.replace(" ", "_")}
        if where:
            line["where"] = where
        if document:
            line |= {"id": document.id, "text": "\n".join(document.segments)}
        self.lines.append(json.dumps(line, ensure_ascii=False) + "\n")

    def write(self, result: Path) -> None:
        """Write the lines next to the task's result, before the result itself is written."""
        if self.lines:
            write_bytes(beside(result), "".join(self.lines).encode())


NOT_WANTED = Rejected(False)


def beside(result: Path) -> Path:
    """Return the path of the lines that belong to a task's result; the file does not exist if there are none."""
    return result.with_name(result.name + SUFFIX)


def collect(results: Iterable[Path], out: Path) -> None:
    """Join the lines of all tasks in the file `out`; raise InputError where it cannot be written."""
    with whole_file(out) as file:
        for path in map(beside, results):
            if path.exists():
                file.writelines(blocks(path))
