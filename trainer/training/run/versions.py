"""What decides a run's numbers besides its recipe and data: the packages and this code, as results record them.

Recorded once, when a run starts; the doctor compares it between hosts. No step reads it.
"""

import functools
import hashlib
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "deepspeed", "transformers", "tokenizers", "webdataset", "numpy", "peft")
UNKNOWN = "unknown"  # without git, or outside a checkout
CODE = ("data_prep/**/*.py", "models/**/*.py", "trainer/**/*.py", "ds_configs/*.json")


@functools.cache  # a process may record many runs, and reading what is installed takes a tenth of a second
def versions() -> dict[str, str]:
    """Return the version of each of PACKAGES that is installed."""
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def code_hash(folder: Path) -> str:
    """Return the first digits of the SHA-256 of this project's code in a folder: no git is needed to compare hosts."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CODE for path in folder.glob(pattern)):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def git_commit(folder: Path) -> str:
    """Return the commit of the checkout around `folder`, with `-dirty` for uncommitted changes, or UNKNOWN."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return answer.stdout.strip()
