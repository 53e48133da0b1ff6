"""The commit of a checkout, as results record it."""

import subprocess
from pathlib import Path

UNKNOWN = "unknown"  # without git, or outside a checkout


def git_commit(folder: Path) -> str:
    """Return the commit of the checkout around `folder`, with `-dirty` for uncommitted changes, or UNKNOWN."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return answer.stdout.strip()
