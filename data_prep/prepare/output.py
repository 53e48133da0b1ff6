"""A prepared data set on disk: OUT/shards, OUT/held_out, and OUT/.partial while it is being made."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from deepsiam.data_prep.common import provenance
from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import (
    PARTIAL,
    lock,
    make_directory,
    os_errors_as_input_errors,
    read_bytes,
    sha256_of,
    sync,
    write_bytes,
)
from deepsiam.data_prep.common.provenance import MOST_SHARDS
from deepsiam.data_prep.prepare import spool, tally, writing
from deepsiam.data_prep.prepare.writing import ShardPlan
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.shards.verify import verify
from deepsiam.data_prep.tokenizers import unknown
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

SPLITS = ("held_out", "shards")  # in the order in which they are moved into place
REMOVALS = ("against", "duplicates", "near_duplicates")  # the last stages, which compare documents
MADE_DIFFERENTLY = "{}: was made from other input or with other options; choose another --out or remove it"
PRINTED_TEMPLATES = 10  # unknown templates that are printed
NAMES = 5  # of the documents in a guessed encoding, that are printed for each
LOCK, OF_TEXT = "lock", "text-only"  # in OUT/.partial: its lock, and the mark of a run that makes text, not shards
BANDS = "near_duplicates.npy"  # the bands and keys of all documents that were compared


def is_finished(out: Path) -> bool:
    """Return whether the preparation of OUT is complete."""
    return (out / "shards" / manifest.NAME).exists()


def work_folder(out: Path) -> Path:
    """Return OUT/.partial; raise InputError if OUT/shards or OUT/held_out exists but was not left there by a run."""
    for split in SPLITS:
        # a run moves a split with its manifest, and OUT/.partial exists until all splits are moved
        is_output = (out / split / manifest.NAME).is_file() and (is_finished(out) or (out / PARTIAL).exists())
        if (out / split).exists() and not is_output:
            raise InputError(f"{out / split}: exists, and is not from an unfinished run; remove it")
    return out / PARTIAL


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """Keep a second process from working in a folder; the lock ends with its process.

    A folder in which nothing has been finished is removed again when the block raises InputError.
    """
    is_new = not work.parent.exists()
    make_directory(work)
    with lock(work / LOCK, f"{work.parent}: is being prepared by another process; wait for it, or stop it"):
        try:
            yield
        except InputError:
            if not any(path.is_file() for path in work.rglob("*") if path.name not in (LOCK, OF_TEXT)):
                shutil.rmtree(work)
                if is_new:
                    work.parent.rmdir()
            raise


def plan(documents: int, size: int, held_out: float, shards_wanted: int | None) -> list[ShardPlan]:
    """Return the shards to write for a number of documents and their bytes of text."""
    shares = {"shards": (1 - held_out, shards_wanted), "held_out": (held_out, None)}
    shards: list[ShardPlan] = []
    for split, (share, number_wanted) in shares.items():
        if share:
            of = writing.shards_of(int(documents * share), int(size * share), number_wanted)
            if of > MOST_SHARDS:
                raise InputError(
                    f"{split}: {of:,} shards are more than {MOST_SHARDS:,}; set --shards, or divide the input"
                )
            shards += (ShardPlan(split, number, of) for number in range(of))
    return shards


def finish(
    out: Path,
    folder: Path,
    shards: Sequence[ShardPlan],
    tok: Tokenizer,
    source: Mapping[str, Any],
    bands: Path | None,
    dropped_before: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Write the manifests of finished shards, and move all into place.

    `source` has the stages before the removal of duplicates; `dropped_before` counts what this removed in the parts.
    """
    results = {split: writing.entries(folder, [shard for shard in shards if shard.split == split]) for split in SPLITS}
    dropped = sum((counts for _, counts in results.values()), Counter(dropped_before))
    stages = [*source["stages"], *last_stages(source, dropped)]
    hashes = {"bands": sha256_of(bands)} if bands else {}
    reasons = tally.dropped(stages)
    if not results["shards"][0] and not manifest.is_part(source):
        raise nothing_left(out, reasons, source["options"]["held_out"])
    ranges = {shard.split: shard.of for shard in shards}
    held_out = sum(entry.documents for entry in results["held_out"][0])
    splits = [split for split in SPLITS if results[split][0] or split == "shards"]  # a part may have no documents
    for split in splits:
        if (out / split).exists() and not (folder / split).exists():
            continue  # already moved by a run that was then killed
        make_directory(folder / split)
        entries, _ = results[split]
        counts: dict[str, Any] = {
            name: sum(getattr(entry, name) for entry in entries) for name in ("documents", "segments", "tokens")
        }
        counts |= {"held_out_documents": held_out, "dropped": reasons}
        write_bytes(folder / split / "tokenizer.json", read_bytes(tok.path))
        about = {**source, "split": split, "ranges": ranges[split], "stages": stages, "counts": counts, **hashes}
        manifest.write(folder / split, tok, about, entries)
    _move_into_place(folder, out, splits, bands)


def _move_into_place(folder: Path, out: Path, splits: Sequence[str], bands: Path | None) -> None:
    """Move finished splits to OUT; replace those of a run that was killed here, perhaps one with other options."""
    with os_errors_as_input_errors(out, "write"):
        if bands is not None:
            os.replace(bands, out / BANDS)
        else:
            (out / BANDS).unlink(missing_ok=True)
        for split in SPLITS:
            if split not in splits:
                shutil.rmtree(out / split, ignore_errors=True)
            elif (folder / split).exists():
                shutil.rmtree(out / split, ignore_errors=True)
                os.replace(folder / split, out / split)
                sync(out)
        shutil.rmtree(out / PARTIAL)


def nothing_left(out: Path, reasons: Mapping[str, int], held_out: float) -> InputError:
    """Return the error for a result without training documents; `held_out` is the share that was asked for."""
    counts = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items()) or "the input has none"
    hint = "; all may be in held-out groups: lower --held-out" if held_out else ""
    return InputError(f"{out}: no documents are left to write ({counts}){hint}")


def last_stages(source: Mapping[str, Any], dropped: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the stages that remove duplicates, as a manifest records them."""
    came = source["spooled"]["documents"]
    options = source["options"]
    folded = {"text": "folded"}
    if options["keep_duplicates"]:  # except text of training documents that are also held out
        folded = {**folded, "of": "held_out"} if options["held_out"] else {}
    for name, reason, parameters in (
        ("against", "elsewhere", {"data sets": options["against"]}),
        ("duplicates", "same_text", folded),
        ("near_duplicates", "near_duplicate", {"similarity": options["near_duplicates"]}),
    ):
        if any(parameters.values()):
            gone = dropped[reason]
            reasons = {reason: gone} if gone else {}
            yield {"name": name, "parameters": parameters, "in": came, "out": came - gone, "dropped": reasons}
            came -= gone


def before_removal(source: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the stages before the removal of duplicates, and the counts of what the removal dropped."""
    stages = source["stages"]
    removals = [stage for stage in stages if stage["name"] in REMOVALS]
    return [stage for stage in stages if stage["name"] not in REMOVALS], Counter(tally.dropped(removals))


def check(out: Path) -> None:
    """Raise InputError where a shard differs from its manifest; remove what a killed run left."""
    for split in splits_of(out):
        for _, problem in verify(out / split):
            raise InputError(f"{problem} (remove {out} to prepare it again)")
    clear(out)


def clear(out: Path) -> None:
    """Remove the work folder that a killed run left; raise InputError where another process works in it."""
    if (out / PARTIAL).exists():
        with alone(out / PARTIAL):
            shutil.rmtree(out / PARTIAL)


def source_of(out: Path) -> dict[str, Any]:
    """Return the `source` of a finished data set's manifest, checked: how it was made."""
    return dict(loaded(out, "shards").source)


def loaded(out: Path, split: str) -> Manifest:
    """Return the manifest of a finished data set's split; raise InputError if no preparation wrote its `source`."""
    listed = Manifest.load(out / split)
    provenance.checked(listed.source, listed.directory / manifest.NAME)
    return listed


def keys_of(folders: Sequence[Path]) -> np.ndarray:
    """Return the sorted keys of all documents of data sets, held out or not; raise InputError where one has no key."""
    keys = [np.empty(0, spool.KEY)]
    for folder in folders:
        for split in splits_of(folder):
            listed = Manifest.load(folder / split)
            for index in range(len(listed.shards)):
                keys.append(np.array([key for key, _ in with_keys(Shard.open(listed, index))], spool.KEY))
    return np.unique(np.concatenate(keys))


def with_keys(shard: Shard) -> Iterator[tuple[int, TokenDocument]]:
    """Yield the documents of a shard with their keys; raise InputError where one has no key."""
    for document in shard.documents():
        if document.key is None:
            raise InputError(f"{shard.path}: its documents have no keys; prepare the data set again")
        yield document.key, document


def splits_of(out: Path) -> list[str]:
    """Return the splits that a finished data set has; raise InputError where its held-out documents are missing."""
    counts = Manifest.load(out / "shards").source.get("counts")
    held_out = isinstance(counts, dict) and counts.get("held_out_documents")
    if held_out and not (out / "held_out").exists():
        raise InputError(f"{out / 'held_out'}: is missing; copy it again, or remove {out} to prepare it again")
    return [split for split in SPLITS if split == "shards" or (out / split).exists()]


def folders_of(directory: Path) -> list[Path]:
    """Return the folders of shards of a finished data set, or `directory` where it is a folder of shards."""
    if manifest.shards_folder(directory) == directory:
        return [directory]
    return [directory / split for split in splits_of(directory)]


def comparable(out: Path, threshold: float | None) -> dict[str, Any]:
    """Return how a data set was made; raise InputError if `threshold` is given and is not its near-duplicates' one."""
    source = source_of(out)
    if threshold is not None and source["options"]["near_duplicates"] != threshold:
        raise InputError(f"{out}: was not prepared with --near-duplicates {threshold}; prepare it again with that")
    return source


def bands_of(out: Path, threshold: float | None) -> Path:
    """Return the file of a data set's bands and keys."""
    source = comparable(out, threshold)
    if sha256_of(out / BANDS) != source.get("bands"):
        raise InputError(f"{out / BANDS}: its SHA-256 is not the one in the manifest (damaged); copy it again")
    return out / BANDS


def summary(out: Path) -> str:
    """Describe a finished data set in a few lines; warn on stderr where much of it is unknown to its tokenizer."""
    listed = loaded(out, "shards")
    source = listed.source
    counts, stages = source["counts"], source["stages"]
    shards = (Shard.open(listed, index) for index in range(len(listed.shards)))
    segments = (segment for shard in shards for document in shard.documents() for segment in document.segments)
    lines = [
        f"{out}: {len(listed.shards):,} shards, a vocabulary of {listed.tokenizer['vocab_size']:,}",
        f"  {counts['documents']:,} documents, {counts['segments']:,} segments, {counts['tokens']:,} tokens; "
        f"{counts['held_out_documents']:,} documents held out",
        *table(stages),
        f"  {unknown.describe(segments, listed.tokenizer['unk'], out)}",
    ]
    return "\n".join(lines)


def table(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of stages, as a manifest records them."""
    lines = [f"  {'stage':<16}{'in':>14}{'out':>14}  dropped"]
    for stage in stages:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in stage["dropped"].items())
        reasons += "".join(f"; {number:,} read as {name}" for name, number in stage.get("guessed", {}).items())
        lines.append(f"  {stage['name']:<16}{stage['in']:>14,}{stage['out']:>14,}  {reasons}".rstrip())
        if sentences := Counter(stage.get("sentences", {})):
            commonest = ", ".join(f"{number:,} {name}" for name, number in sentences.most_common(PRINTED_TEMPLATES))
            dots = ", …" if len(sentences) > PRINTED_TEMPLATES else ""
            lines.append(f"    sentences left out for unknown templates: {sentences.total():,} ({commonest}{dots})")
        for name, names in stage.get("guessed_for", {}).items():
            dots = ", … (in the manifest)" if len(names) > NAMES else ""
            lines.append(f"    read as {name}: {printable(', '.join(names[:NAMES]) + dots)}")
    return lines
