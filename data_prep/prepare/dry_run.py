"""`--dry-run`: prepare the beginning of the input in a temporary folder, and estimate what all of it would take.

The beginning is prepared in two steps, cleaned text and then shards, in one process, so that each step is timed
separately. Times are assumed to grow with the bytes of the input; those of --near-duplicates may grow faster.
"""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from data_prep.common import urls
from data_prep.common.progress import amount, duration
from data_prep.prepare import inputs, output, run, texts
from data_prep.prepare.batches import Part
from data_prep.prepare.options import Options, check_inputs, check_options
from data_prep.sources import cleaned, registry
from data_prep.sources.bytes_read import tally
from data_prep.sources.source import File
from data_prep.tokenizers import tokenizer

SAMPLE = 8_000_000  # bytes of records
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Beginning:
    """The first records: their number, and their share of all records."""

    records: int
    share: float


@dataclass(frozen=True)
class _Trial:
    """What the beginning was turned into, and the seconds that one process took; sizes in bytes."""

    stages: list[dict[str, Any]]
    counts: dict[str, Any]
    text: int
    shards: int
    reading: float
    training: float  # seconds to train a vocabulary on this text
    writing: float


def estimate(locations: Sequence[str], options: Options, processes: int) -> str:
    """Return, as text to print, what a preparation would read and make, and the time and disk space that it would need.

    Raises:
        InputError: an option or a file is bad, or too many of the first records are, or none of them is kept.
    """
    check_options(options)
    check_inputs(locations, options)
    here = [location for location in locations if not urls.is_remote(location)]
    lines = []
    if len(here) < len(locations):
        lines.append(f"{len(locations) - len(here):,} remote files would be downloaded first, and are not counted")
    if here:
        files = list(registry.SOURCES[options.source].find([Path(location) for location in here]))
        total = sum(item["bytes"] for item in inputs.listed(files))
        begun = _beginning(options, files, total)
        lines.append(f"files: {len(files):,}, {amount(total)}; tried with the first {begun.records:,} records:")
        trial = _tried(here, options, begun.records)
        lines += [*output.table(trial.stages), *_forecast(options, begun, trial, processes)]
    return "\n".join(lines)


def _beginning(options: Options, files: Sequence[File], total: int) -> _Beginning:
    """Count the first records: SAMPLE bytes of them, or as many as the options ask for, or all."""
    before = tally.bytes
    records = size = 0
    for piece_size in _sizes(options, files):
        records += 1
        size += piece_size
        if size >= SAMPLE or records == options.limit:
            read = tally.bytes - before
            break
    else:
        read = total
    share = records / options.limit if options.limit and read < total else read / max(total, 1)
    return _Beginning(records, min(share, 1.0))


def _sizes(options: Options, files: Sequence[File]) -> Iterator[int]:
    for file in files:
        for piece in registry.SOURCES[options.source].records(file, options.choices):
            yield piece.size


def _tried(locations: Sequence[str], options: Options, records: int) -> _Trial:
    """Prepare the first records in a temporary folder."""
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        first = replace(options, limit=records, part=Part(), text=True, tokenizer="", held_out=0.0, shards=None)
        _, reading = _timed(lambda: run.prepare(locations, folder / "first", first, 1, 0.5))
        made = cleaned.load(folder / "first" / cleaned.FOLDER)
        vocabulary, training = _timed(lambda: options.tokenizer or _trained(options, folder))
        second = Options("cleaned", tokenizer=str(vocabulary), keep_duplicates=True)
        _, writing = _timed(lambda: run.prepare([str(folder / "first")], folder / "second", second, 1, 0.5))
        return _Trial(
            [stage.model_dump(by_alias=True) for stage in made.source.stages],
            output.source_of(folder / "second")["counts"],
            made.source.spooled.bytes,
            sum(path.stat().st_size for path in (folder / "second" / "shards").iterdir()),
            reading,
            0.0 if options.tokenizer else training,
            writing,
        )


def _forecast(options: Options, begun: _Beginning, trial: _Trial, processes: int) -> Iterator[str]:
    """Yield the lines that estimate the whole input."""
    all_text = trial.text / begun.share
    passes = {"reading": trial.reading / processes / begun.share}
    if not options.text:
        passes["training a vocabulary"] = trial.training * min(run.SAMPLE, all_text) / max(trial.text, 1)
        passes["tokenising and writing"] = trial.writing / processes / begun.share
    parts = ", ".join(f"{what} {duration(seconds)}" for what, seconds in passes.items() if seconds)
    yield f"all of it, {begun.records / begun.share:,.0f} records, with --workers {processes}:"
    yield f"  about {duration(sum(passes.values()))}: {parts}"
    documents, tokens = (round(trial.counts[name] / begun.share) for name in ("documents", "tokens"))
    yield f"  about {documents:,} documents, {tokens:,} tokens"
    kept = "" if options.text else f", then {amount(trial.shards / begun.share)} of shards"
    yield f"  about {amount(all_text)} on disk until the end{kept}"
    if options.part.of > 1:
        yield f"  a part of {options.part.of} makes its share of this, and reads all of the input"


def _trained(options: Options, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    documents = (json.loads(line)["text"] for line in texts.lines(folder / "first" / cleaned.FOLDER))
    tokenizer.train(documents, options.vocab_size, path, options.tokenizer_kind)
    return path


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start
