"""What this host has, as one line of JSON: `python -m trainer.hosts.facts`, run by ssh on each host."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from trainer.run.commit import git_commit

PACKAGES = ("torch", "deepspeed", "transformers", "webdataset", "tokenizers")


@dataclass(frozen=True)
class Facts:
    """What a host has."""

    versions: dict[str, str]  # of Python, of this project's checkout and of the packages that must agree
    gpus: list[int]  # the bytes of memory of each

    def differ_from(self, other: Facts) -> str:
        """Say which versions differ, as `torch 2.9.1, not 2.13.0`; empty where none does."""
        return ", ".join(
            f"{name} {mine}, not {other.versions[name]}"
            for name, mine in self.versions.items()
            if mine != other.versions[name]
        )


def gather() -> Facts:
    """Return the facts of this host."""
    import torch  # here, so that whoever asks other hosts need not wait for it

    gpus = [torch.cuda.get_device_properties(number).total_memory for number in range(torch.cuda.device_count())]
    versions = {"Python": platform.python_version(), "commit": git_commit(Path(__file__).parent)}
    return Facts({**versions, **{name: version(name) for name in PACKAGES}}, gpus)


if __name__ == "__main__":
    json.dump(asdict(gather()), sys.stdout)
