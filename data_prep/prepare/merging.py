"""`python -m data_prep merge PART... --out DIR`: join the parts of a data set, prepared on any machines.

The documents of each part, and of the whole, are in the order of their hashes: each shard of the whole consists of the
parts' documents in its range of hashes. Duplicates and near-duplicates across parts are removed here, and the result
is byte for byte what one machine would have made.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, read_bytes
from deepsiam.data_prep.common.provenance import require_every_part
from deepsiam.data_prep.prepare import near_duplicates, output, spool, tally, writing
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.writing import ShardPlan
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import NAME, REBUILD, Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer

WHOLE_PART = asdict(Part())


@dataclass(frozen=True)
class Parts:
    """The parts of a data set, in order, and the options that a worker needs to join them."""

    manifests: Mapping[str, Sequence[Manifest]]  # of each split, without the parts that lack it
    tokenizer: Path
    chunk_tokens: int
    keep_duplicates: bool
    near_file: str = ""  # the file with the sorted keys of near-duplicates


def merge(folders: Sequence[Path], out: Path, processes: int) -> str:
    """Join the parts in `folders` into OUT, or resume or check OUT; return a summary to print."""
    sources = _agreeing(folders)
    folders = [
        folder for _, folder in sorted(zip((source["part"]["number"] for source in sources), folders, strict=True))
    ]
    if output.is_finished(out):
        if _identity(output.source_of(out)) != _identity({**sources[0], "part": WHOLE_PART}):
            raise InputError(output.MADE_DIFFERENTLY.format(out))
        output.check(out)
        return f"{out}: complete already, nothing to do"
    work = output.work_folder(out)
    with output.alone(work):
        _merge(folders, sources, out, work, processes)
    return output.summary(out)


def _identity(source: Mapping[str, Any]) -> list[Any]:
    return [source.get(name) for name in ("command", "options", "inputs", "part")]


def _agreeing(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the `source` of each part's manifest; raise InputError where the parts do not make up one whole."""
    sources = [output.source_of(folder) for folder in folders]
    for folder, source in zip(folders, sources, strict=True):
        for name in ("command", "options", "inputs"):
            if source[name] != sources[0][name]:
                raise InputError(f"{folder}: was made with other {name} than {folders[0]}; prepare one of them again")
        part, origin = ("{number}/{of}".format(**entry["part"]) for entry in (source, sources[0]))
        if source["part"]["of"] != sources[0]["part"]["of"]:
            raise InputError(f"{folder}: is part {part} but {folders[0]} is part {origin}; name parts of one division")
    require_every_part([source["part"]["number"] for source in sources], sources[0]["part"]["of"], folders[0])
    return sources


def _merge(folders: Sequence[Path], sources: Sequence[dict[str, Any]], out: Path, work: Path, processes: int) -> None:
    digest = blake2b(b"".join(read_bytes(folder / "shards" / NAME) for folder in folders), digest_size=16).hexdigest()
    folder = work / f"merged-{digest}"
    options = sources[0]["options"]
    spooled = {name: sum(source["spooled"][name] for source in sources) for name in ("documents", "bytes")}
    plan = output.plan(spooled["documents"], spooled["bytes"], options["held_out"], options["shards"])
    make_directory(folder / "done")
    threshold = options["near_duplicates"]
    result = None
    if threshold is not None:
        bands = [output.bands_of(part, threshold) for part in folders]
        result = near_duplicates.search([], bands, [], folder, processes)
    tok = tokenizer.load(folders[0] / "shards" / "tokenizer.json")
    parts = Parts(
        {
            split: [output.loaded(part, split) for part in folders if split in output.splits_of(part)]
            for split in output.SPLITS
        },
        tok.path,
        options["chunk_tokens"],
        options["keep_duplicates"],
        str(result.keys) if result else "",
    )
    files = [writing.finished(folder, shard) for shard in plan]
    workers.complete(plan, files, _joiner, (parts, folder), processes, "merge", "shards")
    stages, removals = zip(*(output.before_removal(source) for source in sources), strict=True)
    source = {**sources[0], "part": WHOLE_PART, "spooled": spooled, "stages": tally.shortened(tally.add(stages))}
    output.finish(out, folder, plan, tok, source, result.pairs if result else None, sum(removals, Counter[str]()))


def _joiner(parts: Parts, folder: Path) -> Callable[[ShardPlan], ShardPlan]:
    """Return a worker's task: write a shard of the whole."""
    tok = tokenizer.load(parts.tokenizer)
    near_keys = np.load(parts.near_file, mmap_mode="r") if parts.near_file else np.empty(0, spool.KEY)

    def write(shard: ShardPlan) -> ShardPlan:
        dropped: Counter[str] = Counter()
        documents = list(_in_range(parts, shard))
        training: set[int] = set()  # the keys of training documents that this held-out shard also has
        if shard.split == "held_out":
            keys = {key for key, _ in documents}
            training = {key for key, _ in _in_range(parts, replace(shard, split="shards")) if key in keys}
        unique_documents = _unique(documents, training, parts.keep_duplicates, near_keys, dropped)
        writing.write_documents(folder, shard, unique_documents, tok, parts.chunk_tokens, dropped)
        return shard

    return write


def _in_range(parts: Parts, shard: ShardPlan) -> Iterator[tuple[int, TokenDocument]]:
    """Yield the documents of all parts, with their keys, that are in the range of a shard of the whole."""
    low, high = shard.range
    for listed in parts.manifests[shard.split]:
        for index in _overlapping(listed, shard):
            for key, document in output.with_keys(Shard.open(listed, index)):
                if low <= key < high:
                    yield key, document


def _overlapping(listed: Manifest, shard: ShardPlan) -> Iterator[int]:
    """Yield the indices of a part's shards whose ranges overlap the range of a shard of the whole."""
    low, high = shard.range
    ends = spool.edges(listed.source["ranges"])
    for index, entry in enumerate(listed.shards):
        number = int(entry.name[len("shard-") : -len(".tar")])
        if number >= len(ends) - 1:
            raise InputError(f"{listed.directory / entry.name}: its manifest has {len(ends) - 1} ranges; {REBUILD}")
        if ends[number] < high and low < ends[number + 1]:
            yield index


def _unique(
    documents: Sequence[tuple[int, TokenDocument]],
    training: set[int],
    keep_duplicates: bool,
    near_keys: np.ndarray,
    dropped: Counter[str],
) -> Iterator[TokenDocument]:
    """Yield the documents that stay, in order, by the rules of `writing.kept`; `training`: keys of training text."""
    last_key = -1
    # an id in the form that begins a spool record, so that both sort in the same order
    ids = {id_: json.dumps(id_, ensure_ascii=False).encode() for _, document in documents for id_ in [document.id]}
    for key, document in sorted(documents, key=lambda pair: (pair[0], ids[pair[1].id])):
        if key in training or (key == last_key and not keep_duplicates):
            dropped["same_text"] += 1
        elif writing.contains(near_keys, key):
            dropped["near_duplicate"] += 1
        else:
            yield document
        last_key = key
