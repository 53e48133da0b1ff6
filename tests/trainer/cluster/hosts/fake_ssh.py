"""A fake ssh, and the answers that it gives."""

import json
from dataclasses import asdict
from pathlib import Path

from deepsiam.trainer.cluster.hosts.facts import HostFacts

# ssh [options] HOST COMMAND: prints the host's file, or fails as if the host were dead
ANSWERS = """#!/bin/sh
eval host=\\${$(($# - 1))}
cat "$(dirname "$0")/$host" 2>/dev/null && exit
echo "ssh: connect to host $host port 22: No route to host" >&2
exit 255
"""
# runs the command on this host
RUNS = """#!/bin/sh
while [ $# -gt 1 ]; do shift; done
exec sh -c "$1"
"""


def write(folder: Path, script: str) -> None:
    """Write the script as `ssh` into a folder."""
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)


def answer(folder: Path, *hosts: str, facts: HostFacts) -> None:
    """Let hosts answer with these facts, after a line printed by a login script."""
    for host in hosts:
        (folder / host).write_text(f"Welcome to {host}\n{json.dumps(asdict(facts))}\n")
