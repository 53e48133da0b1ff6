"""Read hostfiles: one line a host, with its name and its number of ranks."""

import re
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import read_bytes

FORM = "NAME slots=NUMBER"
LARGEST, MOST_HOSTS, MOST_SLOTS, DIGITS = 1 << 22, 10_000, 1024, 9  # bytes of the file; hosts; of one; of that number
# DeepSpeed's parser reads these lines alike; it also accepts `slots=8x`, and takes a name like -v for an ssh option
_LINE = re.compile(r"([\w\[][\w.:@\[\]-]*)\s+slots=(\d+)(?:\s+#.*)?", re.ASCII)


def read(path: Path) -> dict[str, int]:
    """Return the number of ranks of each host, in the order of the file; raise InputError, naming the line at fault.

    DeepSpeed only warns about a missing file, and trains on this host alone.
    """
    try:
        lines = read_bytes(path, LARGEST).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text: give a file with a line `{FORM}` for each host") from None
    slots: dict[str, int] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if not found:
            raise InputError(f"{path}:{number}: {printable(line)!r} is not `{FORM}`")
        name = found[1]
        if len(found[2]) > DIGITS or int(found[2]) > MOST_SLOTS:
            raise InputError(f"{path}:{number}: more than {MOST_SLOTS:,} slots, the most of a host: give it one a GPU")
        if len(slots) == MOST_HOSTS:
            raise InputError(f"{path}:{number}: more than {MOST_HOSTS:,} hosts, the most that one job can have")
        if int(found[2]) == 0:
            raise InputError(f"{path}:{number}: {name} has no slots: give it one for each GPU, or remove the line")
        if name in seen:
            raise InputError(f"{path}:{number}: {name} is named in line {seen[name]} already: give each host one line")
        slots[name], seen[name] = int(found[2]), number
    if not slots:
        raise InputError(f"{path}: names no host: give a line `{FORM}` for each")
    return slots
