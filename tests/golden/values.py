"""Golden values: a JSON file for each section, and where a result of today differs from it.

Numbers with a fraction may differ by TOLERANCE of their size, as the last digits depend on the processor. All else,
also hashes, must be the same. Documents of a ranking may change places only where their scores are that near.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("values")
TOLERANCE = 1e-4
RANKED = {"documents", "scores"}  # the keys of a ranking


def load(section: str) -> Any:
    """Read the values of a section."""
    return json.loads((FOLDER / f"{section}.json").read_text())


def write(section: str, values: Any) -> None:
    """Write the values of a section, a line for each name."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sorted(values.items()))
    (FOLDER / f"{section}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def plain(values: Any) -> Any:
    """Return values as they are read back."""
    return json.loads(json.dumps(values))


def number(value: float) -> float:
    """Return a number with the digits that are compared, and two more; it stays a float."""
    return float(f"{value:.7g}")


def digest(*arrays: np.ndarray) -> str:
    """Return a hash of the types, shapes and contents of arrays."""
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(f"{array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()[:16]


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each place in which plain values differ from golden ones."""
    if isinstance(was, dict) and isinstance(now, dict):
        if was.keys() == now.keys() == RANKED:
            yield from _differently_ranked(was, now, where)
            return
        for key in sorted({*was, *now}):
            if key in was and key in now:
                yield from differences(was[key], now[key], f"{where}/{key}")
            else:
                yield f"{where}/{key}: is {'gone' if key in was else 'new'}"
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{where}/{place}")
    elif isinstance(was, float) and isinstance(now, float):
        if not math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=1e-7):
            yield f"{where}: was {was}, is {now}"
    elif type(was) is not type(now) or was != now:
        yield f"{where}: was {was}, is {now}"


def _differently_ranked(was: Any, now: Any, where: str) -> Iterator[str]:
    yield from differences(was["scores"], now["scores"], f"{where}/scores")
    clear = _clear(was["scores"])
    for key, value in {"was": was, "is": now}.items():
        if len(value["documents"]) != len(clear):
            yield f"{where}: {key} {len(value['documents'])} documents"
            return
    for place in np.flatnonzero(clear).tolist():
        if was["documents"][place] != now["documents"][place]:
            yield f"{where}/{place}: was {was['documents'][place]}, is {now['documents'][place]}"


def _clear(scores: Sequence[float]) -> np.ndarray:
    """Return where a score, or the end of the list, is not near its neighbours' scores."""
    values = np.array(scores)
    gaps = np.abs(np.diff(values)) > 3 * TOLERANCE * np.abs(values).max(initial=0)
    clear: np.ndarray = np.append(True, gaps) & np.append(gaps, False)  # what is behind the last one is not known
    return clear
