"""An ssh that answers as a test asks, and what it answers."""

import json
from dataclasses import asdict
from pathlib import Path

from trainer.hosts.facts import Facts

# ssh [options] HOST COMMAND: prints the file of the host, or fails as a dead host does
ANSWERS = """#!/bin/sh
eval host=\\${$(($# - 1))}
cat "$(dirname "$0")/$host" 2>/dev/null && exit
echo "ssh: connect to host $host port 22: No route to host" >&2
exit 255
"""
# runs the command here
RUNS = """#!/bin/sh
while [ $# -gt 1 ]; do shift; done
exec sh -c "$1"
"""


def write(folder: Path, script: str) -> None:
    """Write the script as `ssh` into a folder."""
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)


def answer(folder: Path, *hosts: str, facts: Facts) -> None:
    """Let hosts answer with these facts, after a login script's words."""
    for host in hosts:
        (folder / host).write_text(f"Welcome to {host}\n{json.dumps(asdict(facts))}\n")
