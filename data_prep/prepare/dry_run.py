"""`--dry-run`: prepare a little of the input in a temporary folder, and estimate what all of it would take.

The first records of a few files are prepared in two steps, cleaned text and then shards, in one process, so that each
step is timed separately. Times are assumed to grow with the bytes of the input; those of --near-duplicates may grow
faster.
"""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import CutOffError, InputError
from deepsiam.data_prep.common.progress import amount, duration
from deepsiam.data_prep.prepare import inputs, output, run, texts
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.options import Options, check_inputs, check_options
from deepsiam.data_prep.sources import cleaned, registry
from deepsiam.data_prep.sources.bytes_read import tally
from deepsiam.data_prep.sources.source import File
from deepsiam.data_prep.tokenizers import tokenizer

SAMPLE = 8_000_000  # bytes of text
FILES = 4  # that share the sample; more where they are small
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Sample:
    """The first records of some files."""

    records: Mapping[str, int]  # how many of each file, by its name
    share: float  # of the records of all files

    @property
    def number(self) -> int:
        return sum(self.records.values())


class _Scanned(NamedTuple):
    """The beginning of a file: the records to try and their text, and the text in its first `read` bytes; in bytes."""

    records: int
    tried: int
    text: int
    read: int


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
        sample = _sampled(options, files, total)
        of = f" of {len(sample.records):,} files" if len(files) > 1 else ""
        lines.append(f"files: {len(files):,}, {amount(total)}; tried with the first {sample.number:,} records{of}:")
        trial = _tried(here, options, sample)
        lines += [*output.table(trial.stages), *_forecast(options, sample, trial, processes)]
    return "\n".join(lines)


def _sampled(options: Options, files: Sequence[File], total: int) -> _Sample:
    """Choose the first records of files from all over the input; with a limit, those that it allows.

    They have SAMPLE bytes of text, or all that there is. `total`: the bytes of all files.
    """
    step = -(-len(files) // FILES)
    spread = files if options.limit else [file for first in range(step) for file in files[first::step]]
    records: dict[str, int] = {}
    tried = text = read = 0
    for file in spread:
        left = options.limit - sum(records.values()) if isinstance(options.limit, int) else None
        if tried >= SAMPLE or left == 0:
            break
        quota = SAMPLE - tried if options.limit else min(SAMPLE - tried, SAMPLE // min(FILES, len(files)))
        scanned = _scan(options, file, quota, left)
        records[file.name] = scanned.records
        tried, text, read = tried + scanned.tried, text + scanned.text, read + scanned.read
    share = tried * read / (text * total) if text and total else 1.0
    if isinstance(options.limit, int):
        share = max(share, sum(records.values()) / options.limit)
    return _Sample(records, min(share, 1.0))


def _scan(options: Options, file: File, quota: int, most: int | None) -> _Scanned:
    """Count the records in the first `quota` bytes of text, at most `most`; read on to learn the file's density."""
    start = at = tally.bytes
    records = tried = text = whole = read = 0
    try:
        for piece in registry.SOURCES[options.source].records(file, options.choices):
            if tally.bytes != at:  # all the text of what was read before has come
                whole, read, at = text, at - start, tally.bytes
            if text < quota and records != most:
                records, tried = records + 1, text + piece.size
            elif read:
                break
            text += piece.size
        else:
            whole, read = text, file.path.stat().st_size
    except CutOffError:  # the trial meets it too, and refuses or accepts it
        records, whole, read = records + 1, text, file.path.stat().st_size
    return _Scanned(records, tried, whole, read)


def _tried(locations: Sequence[str], options: Options, sample: _Sample) -> _Trial:
    """Prepare the sample in a temporary folder."""
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        first = replace(options, limit=sample.records, part=Part(), text=True, tokenizer="", held_out=0.0, shards=None)
        try:
            _, reading = _timed(lambda: run.prepare(locations, folder / "first", first, 1, 0.5))
        except InputError as error:
            raise InputError(str(error).replace(str(folder / "first"), "the records that were tried")) from None
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


def _forecast(options: Options, sample: _Sample, trial: _Trial, processes: int) -> Iterator[str]:
    """Yield the lines that estimate the whole input."""
    all_text = trial.text / sample.share
    passes = {"reading": trial.reading / processes / sample.share}
    if not options.text:
        passes["training a vocabulary"] = trial.training * min(run.SAMPLE, all_text) / max(trial.text, 1)
        passes["tokenising and writing"] = trial.writing / processes / sample.share
    parts = ", ".join(f"{what} {duration(seconds)}" for what, seconds in passes.items() if seconds)
    yield f"all of it, {sample.number / sample.share:,.0f} records, with --workers {processes}:"
    yield f"  about {duration(sum(passes.values()))}: {parts}"
    documents, tokens = (round(trial.counts[name] / sample.share) for name in ("documents", "tokens"))
    yield f"  about {documents:,} documents, {tokens:,} tokens"
    kept = "" if options.text else f", then {amount(trial.shards / sample.share)} of shards"
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
