"""Seeded damage to the files of a run or an index, of every kind: wrong types, bounds, depth, cut and flipped bytes."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOSTILE = [  # written in place of a value of a JSON or YAML file
    *("null", "true", "-1", "0", "1.5", "NaN", "1e400", "-Infinity", "1" + "0" * 30, "1" + "0" * 5000, '""', '"x"'),
    *(
        '"../../x"',
        '"/dev/zero"',
        '"\\u0000"',
        '"\\ud800"',
        "[]",
        "{}",
        "[[]]",
        '{"a": 1}',
        "[" * 300 + "]" * 300,
        "1000000007",
    ),
]


def damaged(content: bytes, name: str, rng: random.Random) -> bytes:
    """Return a file's bytes with one damage."""
    if name.endswith((".json", ".yaml")) and rng.random() < 0.85:
        values = json.loads(content)
        places = list(_places(values))
        holder, key = rng.choice(places)
        if rng.random() < 0.15:
            del holder[key]
            return json.dumps(values).encode()
        hostile = rng.choice(HOSTILE)
        if isinstance(holder, dict) and rng.random() < 0.1:
            holder["x"] = holder.pop(key)  # under another name
        else:
            holder[key] = "HOSTILE"
        return json.dumps(values).replace('"HOSTILE"', hostile, 1).encode()
    how = rng.randrange(4)
    if how == 0 or not content:
        return b""
    if how == 1:
        return content[: rng.randrange(len(content))]
    at = rng.randrange(min(len(content), 200) if how == 2 else len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value within a JSON value."""
    named: Any = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, inner in list(named):
        yield values, key
        yield from _places(inner)


def restored(folder: Path) -> dict[Path, bytes]:
    """Return the contents of all files of a folder, to write them again."""
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
