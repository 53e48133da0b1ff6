"""`python -m data_prep docstrings`: Python packages -> shards to pre-train on, a collection to rank.

    OUT/shards/         documents of the training packages in hash order, tokenizer.json, manifest.json
    OUT/collection/     (summary -> body) pairs as a tokenised BEIR folder

Everything is written to OUT/.partial and moved into place at the end, the shards last.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL, make_directory, os_errors_as_input_errors, remove, replace_folder
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.demo.pairs import SPLITS, Split, in_hash_order, split, write_collection
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.shards.verify import verify
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.sources.docstrings import modules
from deepsiam.data_prep.sources.docstrings.modules import Docstring, SourceFile
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

BEGUN = "docstrings"  # in OUT/.partial: it is this command's
SAMPLE = 10_000_000  # characters of training text that the tokenizer is trained on


@dataclass(frozen=True)
class DemoOptions:
    """The options that, with the Python files, determine the output."""

    vocab_size: int = 8192
    chunk_tokens: int = 8192
    chunks_per_shard: int = 8


def build(
    out: Path, options: DemoOptions, files: Sequence[SourceFile], workers: int, given_tokenizer: Tokenizer | None = None
) -> str:
    """Build OUT from Python files, or check an OUT that is complete, and return a summary to print.

    A tokenizer is trained where none is given. The output does not depend on `workers`. A run that fails
    leaves nothing in OUT.
    """
    if (out / "shards" / NAME).exists():
        return _check(out, options, given_tokenizer)
    partial = out / PARTIAL
    is_begun = (partial / BEGUN).exists()
    for folder in (partial, out / "shards", out / "collection"):
        if not is_begun and folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder}: exists, and is not from an unfinished run; remove it, or choose another --out")
    unfinished = [partial, out / "collection", out / "shards"]
    existed = out.exists()
    make_directory(out)
    with os_errors_as_input_errors(out, "write"):
        try:
            _remove(unfinished)  # left by a killed run
            make_directory(partial)
            (partial / BEGUN).touch()
            _build(partial, options, files, workers, given_tokenizer)
            for name in ("collection", "shards"):  # the shards last: with their manifest, OUT is complete
                replace_folder(partial / name, out / name)
            _remove([partial])
        except BaseException:
            _remove(unfinished if existed else [out])
            raise
    return _summary(out, Manifest.load(out / "shards"))


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            remove(folder)


def _build(
    partial: Path, options: DemoOptions, files: Sequence[SourceFile], workers: int, given_tokenizer: Tokenizer | None
) -> None:
    """Write PARTIAL/shards and PARTIAL/collection."""
    docstrings: list[Docstring] = []
    dropped: Counter[str] = Counter()
    for in_file, reasons in modules.read_all(files, workers):
        docstrings += in_file
        dropped += reasons
    parts = split(docstrings)
    dropped += parts.dropped
    training = in_hash_order(parts.documents["train"], lambda docstring: docstring.document.id)
    if not training or not all(parts.pairs[name] for name in SPLITS):
        raise InputError(f"{len(files)} Python files contain too little English to train on and to hold out")
    trained = partial / "tokenizer.json"
    tok = given_tokenizer or tokenizer.train(_sample(training), options.vocab_size, trained)

    write_collection(partial / "collection", parts.pairs)
    build_collection("beir", [partial / "collection"], partial / "collection", tok, workers)
    counts = _counts(parts, dropped)
    source = {
        "command": "docstrings",
        "dialogues": False,
        "options": asdict(options),
        "files": len(files),
        "packages": _packages(parts, files),
        "counts": counts,
    }
    with ShardWriter(partial / "shards", tok, options.chunk_tokens, options.chunks_per_shard, source) as writer:
        documents = ((d.document.id, d.document.segments) for d in track(training, "shards", "documents"))
        for name, segments in tok.splitting(True).encode_batches(documents):
            writer.add(name, segments)
            counts["tokens"] += sum(map(len, segments))
    trained.unlink(missing_ok=True)


def _check(out: Path, options: DemoOptions, given_tokenizer: Tokenizer | None) -> str:
    """Return a line for an OUT that is complete; raise InputError if it is damaged or was built with other options."""
    manifest = Manifest.load(out / "shards")
    if manifest.source.get("options") != asdict(options):
        recorded = manifest.source.get("options")
        raise InputError(f"{out}: was built with other options ({recorded}); choose another --out or remove it")
    if given_tokenizer and manifest.tokenizer["fingerprint"] != given_tokenizer.fingerprint:
        raise InputError(f"{out}: was built without {given_tokenizer.path}; choose another --out or remove it")
    for _, problem in verify(out / "shards"):
        raise InputError(f"{problem} (remove {out} to build it again)")
    Collection.open(out / "collection")
    return f"{out}: complete already, nothing to do"


def _sample(training: Sequence[Docstring]) -> Iterator[str]:
    """Yield the first texts, up to SAMPLE characters: hash order makes them a random sample."""
    size = 0
    for docstring in training:
        yield docstring.text
        size += len(docstring.text)
        if size >= SAMPLE:
            return


def _packages(parts: Split, files: Sequence[SourceFile]) -> dict[str, dict[str, Any]]:
    """Return what was read of each package: its version if known, files, documents kept, and its split."""
    number = Counter(file.package for file in files)
    documents = Counter(docstring.package for docstrings in parts.documents.values() for docstring in docstrings)
    releases = {file.package: file.release for file in files}
    return {
        package: {
            "version": releases[package],
            "files": number[package],
            "documents": documents[package],
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
    held_out = counts["held_out_documents"]
    records = manifest.source["packages"].items()
    packages = {name: [package for package, record in records if record["split"] == name] for name in SPLITS}
    lines = [
        f"{out}: {len(manifest.shards)} shards, a vocabulary of {manifest.tokenizer['vocab_size']:,}",
        f"  to pre-train on: {counts['documents']:,} documents, {counts['segments']:,} sentences, "
        f"{counts['tokens']:,} tokens of {len(packages['train'])} packages",
        f"  held out: {held_out['test']:,} documents of {', '.join(packages['test'])} (test), "
        f"{held_out['dev']:,} of {', '.join(packages['dev'])} (dev)",
        "  pairs: " + ", ".join(f"{number:,} {name}" for name, number in counts["pairs"].items()),
        "  dropped: " + ", ".join(f"{number:,} {reason}" for reason, number in counts["dropped"].items()),
    ]
    return "\n".join(lines)
