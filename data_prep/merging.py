"""`python -m data_prep merge PART... --out DIR`: the parts of a data set, prepared anywhere, as one.

The documents of a part are in the order of the hashes, and so are those of the whole: each of its shards is made of the
stretches of the parts' that fall in its range. What parts could not know of one another, documents that are the same or
nearly so, is removed here, and the result is byte for byte what one machine would have made.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import dataset, near_pass, spool, tally, tokenizer, workers, writing
from data_prep.batches import Part
from data_prep.errors import InputError
from data_prep.files import make_directory, read_bytes
from data_prep.manifest import NAME, Manifest
from data_prep.packing import TokenizedDocument
from data_prep.progress import track
from data_prep.shards import Shard as OpenShard
from data_prep.writing import Shard

WHOLE = asdict(Part())


@dataclass(frozen=True)
class Parts:
    """The parts of a data set, in their order, and what a worker must know to join them."""

    folders: tuple[Path, ...]
    tokenizer: Path
    chunk_tokens: int
    keep_duplicates: bool
    near: str = ""  # the file with the sorted keys of near-duplicates


def merge(folders: Sequence[Path], out: Path, processes: int) -> str:
    """Joins the parts in `folders` to OUT, goes on with that, or finds it done; returns a summary to print.

    Raises:
        InputError: a part is missing, is there twice, is damaged, or was made with other options than the others.
    """
    sources = _agreeing(folders)
    folders = [
        folder for _, folder in sorted(zip((source["part"]["number"] for source in sources), folders, strict=True))
    ]
    if dataset.is_finished(out):
        if _identity(dataset.source_of(out)) != _identity({**sources[0], "part": WHOLE}):
            raise InputError(dataset.OTHERWISE.format(out))
        dataset.check(out)
        return f"{out}: complete already, nothing to do"
    work = dataset.work_folder(out)
    with dataset.alone(work):
        _merge(folders, sources, out, work, processes)
    return dataset.summary(out)


def _identity(source: Mapping[str, Any]) -> list[Any]:
    return [source.get(what) for what in ("command", "options", "inputs", "part")]


def _agreeing(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What the manifests of the parts say; InputError where they do not make up one whole."""
    sources = [dataset.source_of(folder) for folder in folders]
    for folder, source in zip(folders, sources, strict=True):
        if not isinstance(source.get("part"), dict):
            raise InputError(f"{folder}: is no part of a data set, prepared with --part")
        for what in ("command", "options", "inputs"):
            if source[what] != sources[0][what]:
                raise InputError(f"{folder}: was made with other {what} than {folders[0]}; prepare one of them again")
        one, first = ("{number}/{of}".format(**made["part"]) for made in (source, sources[0]))
        if source["part"]["of"] != sources[0]["part"]["of"]:
            raise InputError(f"{folder}: is part {one}, where {folders[0]} is part {first}; name those of one division")
    of = sources[0]["part"]["of"]
    numbers = Counter(source["part"]["number"] for source in sources)
    for number in range(1, of + 1):
        if numbers[number] != 1:
            problem = "is missing" if not numbers[number] else "is there twice"
            raise InputError(f"{folders[0]} and others: part {number}/{of} {problem}; name every part once")
    return sources


def _merge(folders: Sequence[Path], sources: Sequence[dict[str, Any]], out: Path, work: Path, processes: int) -> None:
    digest = blake2b(b"".join(read_bytes(folder / "shards" / NAME) for folder in folders), digest_size=16).hexdigest()
    folder = work / f"merged-{digest}"
    options = sources[0]["options"]
    spooled = {name: sum(source["spooled"][name] for source in sources) for name in ("documents", "bytes")}
    plan = dataset.plan(spooled["documents"], spooled["bytes"], options["held_out"], options["shards"])
    make_directory(folder / "done")
    threshold = options["near_duplicates"]
    near = _near(folders, threshold, folder, processes) if threshold is not None else None
    tok = tokenizer.load(folders[0] / "shards" / "tokenizer.json")
    parts = Parts(
        tuple(folders), tok.path, options["chunk_tokens"], options["keep_duplicates"], str(near.keys) if near else ""
    )
    left = [shard for shard in plan if not writing.finished(folder, shard).exists()]
    for _ in track(workers.run(left, _joiner, (parts, folder), processes), "merge", "shards", len(left)):
        pass
    stages, removed = zip(*(dataset.before_removal(source) for source in sources), strict=True)
    source = {
        **sources[0],
        "part": WHOLE,
        "spooled": spooled,
        "stages": tally.add(stages),
    }
    dataset.finish(out, folder, plan, tok, source, near.pairs if near else None, sum(removed, Counter[str]()))


def _near(folders: Sequence[Path], threshold: float, folder: Path, processes: int) -> near_pass.Found:
    """The near-duplicates among all parts."""
    files = [dataset.pairs_of(part, threshold) for part in folders]
    wanted = near_pass.ranges(sum(file.stat().st_size for file in files))
    left = [one for one in wanted if not near_pass.pairs_file(folder, one).exists()]
    arguments: tuple[Any, ...] = [], files, [], folder
    for _ in track(workers.run(left, near_pass.comparer, arguments, processes), "near", "ranges", len(left)):
        pass
    return near_pass.collect(folder, wanted)


def _joiner(parts: Parts, folder: Path) -> Callable[[Shard], Shard]:
    """What a worker does with each shard of the whole."""
    tok = tokenizer.load(parts.tokenizer)
    near = np.load(parts.near, mmap_mode="r") if parts.near else np.empty(0, spool.KEY)

    def write(shard: Shard) -> Shard:
        dropped: Counter[str] = Counter()
        found = [document for part in parts.folders for document in _stretch(part, shard)]
        kept = _unique(found, parts.keep_duplicates, near, dropped)
        writing.write_documents(folder, shard, kept, tok, parts.chunk_tokens, dropped)
        return shard

    return write


def _stretch(part: Path, shard: Shard) -> Iterator[TokenizedDocument]:
    """The documents of a part that are in the range of a shard of the whole."""
    low, high = shard.range
    if not (part / shard.split).exists():
        return
    listed = Manifest.load(part / shard.split)
    of = listed.source["ranges"]
    for index, entry in enumerate(listed.shards):
        number = int(entry.name[len("shard-") : -len(".tar")])
        begin, end = Shard(shard.split, number, of).range
        if begin < high and low < end:
            for document in OpenShard.open(listed, index).documents():
                if low <= document.key < high:
                    yield document


def _unique(
    found: Iterable[TokenizedDocument], keep_duplicates: bool, near: np.ndarray, dropped: Counter[str]
) -> Iterator[TokenizedDocument]:
    """The documents that stay, in their order; as `writing.kept`."""
    before = -1
    for document in sorted(found, key=lambda one: (one.key, json.dumps(one.id, ensure_ascii=False).encode())):
        if document.key == before and not keep_duplicates:
            dropped["same_text"] += 1
        elif writing.contains(near, document.key):
            dropped["near_duplicate"] += 1
        else:
            yield document
        before = document.key
