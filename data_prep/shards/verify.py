"""Verify shards: every byte and every chunk against the manifest."""

from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.shards.manifest import REBUILD, Manifest
from deepsiam.data_prep.shards.reader import Shard


def verify(directory: Path) -> list[tuple[str, str]]:
    """Read every byte and every chunk, and return all problems as (shard, problem)."""
    manifest = Manifest.load(directory)
    problems = []
    for index, entry in enumerate(track(manifest.shards, "verify", "shards")):
        try:
            counts = dict.fromkeys(("documents", "segments", "tokens"), 0)
            for document in Shard.open(manifest, index).documents():
                counts["documents"] += 1
                counts["segments"] += len(document.segments)
                counts["tokens"] += sum(map(len, document.segments))
        except InputError as error:
            problems.append((entry.name, str(error)))
            continue
        for field, number in counts.items():
            if number != getattr(entry, field):
                reason = f"{number} {field}, the manifest lists {getattr(entry, field)}"
                problems.append((entry.name, f"{manifest.directory / entry.name}: {reason}; {REBUILD}"))
    names = {entry.name for entry in manifest.shards}
    for path in sorted(manifest.directory.glob("shard-*.tar")):
        if path.name not in names:
            problems.append((path.name, f"{path}: not in the manifest; remove it"))
    return problems
