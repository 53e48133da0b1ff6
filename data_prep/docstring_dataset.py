"""`python -m data_prep docstrings`: installed packages -> shards to pre-train on, a collection to rank.

    OUT/shards/         documents of the training packages in hash order, tokenizer.json, manifest.json
    OUT/collection/     (summary -> body) pairs as a tokenised BEIR folder

Everything is made in OUT/.partial and moved into place at the end, the shards last.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import collection, docstrings, tokenizer
from data_prep.collection import Collection
from data_prep.docstring_pairs import SPLITS, Split, in_hash_order, split, write_collection
from data_prep.docstrings import Docstring, SourceFile
from data_prep.errors import InputError
from data_prep.files import PARTIAL, make_directory, os_errors_as_input_errors, sync_directory
from data_prep.manifest import NAME, Manifest
from data_prep.progress import track
from data_prep.shards import ShardWriter, verify
from data_prep.tokenizer import Tokenizer

SAMPLE = 10_000_000  # characters of training text that the tokenizer is learned from
BATCH = 512  # documents tokenised at once


@dataclass(frozen=True)
class Options:
    """What determines the output, beside the packages that are installed."""

    vocab_size: int = 8192
    chunk_tokens: int = 8192
    chunks_per_shard: int = 8


def build(out: Path, options: Options, files: Sequence[SourceFile], workers: int) -> str:
    """Builds OUT from Python files, or finds it built, and returns a summary to print.

    The output does not depend on `workers`.

    Raises:
        InputError: OUT holds something else, cannot be written, or the files have too little English.
            Nothing is left in OUT then.
    """
    if (out / "shards" / NAME).exists():
        return _check(out, options)
    partial = out / PARTIAL
    for name in ("shards", "collection"):
        if (out / name).exists() and not partial.exists():
            raise InputError(f"{out / name}: in the way, and not from an unfinished run; remove it")
    existed = out.exists()
    make_directory(out)
    with os_errors_as_input_errors(out, "write"):
        try:
            for path in (partial, out / "collection", out / "shards"):
                shutil.rmtree(path, ignore_errors=True)
            make_directory(partial)
            _build(partial, options, files, workers)
            (partial / "collection").rename(out / "collection")
            (partial / "shards").rename(out / "shards")
            partial.rmdir()
            sync_directory(out)
        except BaseException:
            shutil.rmtree(out if not existed else partial, ignore_errors=True)
            raise
    return _summary(out, Manifest.load(out / "shards"))


def _build(partial: Path, options: Options, files: Sequence[SourceFile], workers: int) -> None:
    """Writes PARTIAL/shards and PARTIAL/collection."""
    found: list[Docstring] = []
    dropped: Counter[str] = Counter()
    for some, reasons in docstrings.read_all(files, workers):
        found += some
        dropped += reasons
    parts = split(found)
    dropped += parts.dropped
    training = in_hash_order(parts.documents["train"], lambda docstring: docstring.document.id)
    if not training or not all(parts.pairs[name] for name in SPLITS):
        raise InputError(f"{len(files)} Python files hold too little English to train on and hold out")
    tok = tokenizer.train(_sample(training), options.vocab_size, partial / "tokenizer.json")

    write_collection(partial / "collection", parts.pairs)
    collection.tokenize(partial / "collection", tok)
    counts = _counts(parts, dropped)
    source = {
        "command": "docstrings",
        "options": asdict(options),
        "files": len(files),
        "packages": _packages(parts, files),
        "counts": counts,
    }
    with ShardWriter(partial / "shards", tok, options.chunk_tokens, options.chunks_per_shard, source) as writer:
        for docstring, segments in _tokenized(training, tok):
            writer.add(docstring.document.id, segments)
            counts["tokens"] += sum(map(len, segments))
    tok.path.unlink()


def _check(out: Path, options: Options) -> str:
    """Says that a finished OUT is whole; InputError where it is not, or was made with other options."""
    manifest = Manifest.load(out / "shards")
    if manifest.source.get("options") != asdict(options):
        made = manifest.source.get("options")
        raise InputError(f"{out}: was made with other options ({made}); choose another --out or remove it")
    for _, problem in verify(out / "shards"):
        raise InputError(f"{problem} (remove {out} to build it again)")
    Collection.open(out / "collection")
    return f"{out}: complete already, nothing to do"


def _sample(training: Sequence[Docstring]) -> Iterator[str]:
    """The first texts, up to SAMPLE characters: in hash order these are a fair sample."""
    size = 0
    for docstring in training:
        yield docstring.text
        size += len(docstring.text)
        if size >= SAMPLE:
            return


def _tokenized(training: Sequence[Docstring], tok: Tokenizer) -> Iterator[tuple[Docstring, list[np.ndarray]]]:
    for start in track(range(0, len(training), BATCH), "shards", f"batches of {BATCH} documents"):
        batch = training[start : start + BATCH]
        encoded = iter(tok.encode([segment for item in batch for segment in item.document.segments]))
        for docstring in batch:
            yield docstring, list(islice(encoded, len(docstring.document.segments)))


def _packages(parts: Split, files: Sequence[SourceFile]) -> dict[str, dict[str, Any]]:
    """What was read of each package: version where known, files, documents kept, and its split."""
    number = Counter(file.package for file in files)
    kept = Counter(docstring.package for own in parts.documents.values() for docstring in own)
    known = docstrings.versions(sorted(number))
    return {
        package: {
            "version": known.get(package),
            "files": number[package],
            "documents": kept[package],
            "split": parts.packages.get(package),
        }
        for package in sorted(number)
    }


def _counts(parts: Split, dropped: Counter[str]) -> dict[str, Any]:
    training = parts.documents["train"]
    return {
        "documents": len(training),
        "segments": sum(len(docstring.document.segments) for docstring in training),
        "tokens": 0,
        "held_out_documents": {name: len(parts.documents[name]) for name in ("test", "dev")},
        "pairs": {name: len(parts.pairs[name]) for name in SPLITS},
        "dropped": dict(sorted(dropped.items())),
    }


def _summary(out: Path, manifest: Manifest) -> str:
    counts = manifest.source["counts"]
    held = counts["held_out_documents"]
    kinds = {name: [p for p, r in manifest.source["packages"].items() if r["split"] == name] for name in SPLITS}
    lines = [
        f"{out}: {len(manifest.shards)} shards, a vocabulary of {manifest.tokenizer['vocab_size']:,}",
        f"  to pre-train on: {counts['documents']:,} documents, {counts['segments']:,} sentences, "
        f"{counts['tokens']:,} tokens of {len(kinds['train'])} packages",
        f"  held out: {held['test']:,} documents of {', '.join(kinds['test'])} (test), "
        f"{held['dev']:,} of {', '.join(kinds['dev'])} (dev)",
        "  pairs: " + ", ".join(f"{number:,} {name}" for name, number in counts["pairs"].items()),
        "  dropped: " + ", ".join(f"{number:,} {reason}" for reason, number in counts["dropped"].items()),
    ]
    return "\n".join(lines)
