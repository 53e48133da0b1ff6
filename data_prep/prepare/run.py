"""`python -m data_prep SOURCE INPUT...`: from raw files to shards, in passes that a killed run resumes.

    OUT/shards/      documents in the order of the hash of their text, tokenizer.json, manifest.json
    OUT/held_out/    the same for a share of the groups, if --held-out is given

1. read: batches of the input become spooled documents that have passed every stage (reading.py);
2. near-duplicates are searched for, if --near-duplicates is given (near_duplicates.py);
3. a tokenizer is trained on a sample of the training split, or an existing one is copied;
4. write: each range of hashes becomes a shard (writing.py).

Finished results are in OUT/.partial under names that identify their inputs. Everything is moved into place at the end,
the shards last.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.common import workers
from data_prep.common.errors import InputError
from data_prep.common.files import make_directory, read_bytes, sha256_of, whole_file
from data_prep.common.progress import meter, track
from data_prep.prepare import inputs, near_duplicates, ngrams, output, reading, spool, tally, writing
from data_prep.prepare.batches import Batch, Part, batches
from data_prep.prepare.reading import Reading
from data_prep.prepare.stages import Options as StageOptions
from data_prep.prepare.tally import Totals
from data_prep.prepare.writing import Selection
from data_prep.shards import manifest
from data_prep.sources import registry
from data_prep.tokenizers import tokenizer
from data_prep.tokenizers.tokenizer import Tokenizer

SAMPLE = 1 << 25  # bytes of text that a tokenizer is trained on
JOIN_BYTES = 1 << 26  # of fragments that are joined at once
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Options:
    """All options that determine the output."""

    source: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    stages: StageOptions = field(default_factory=StageOptions)
    keep_duplicates: bool = False
    near_duplicates: float | None = None
    against: tuple[str, ...] = ()
    held_out: float = 0.0
    tokenizer: str = ""  # the path of an existing one; "": one is trained
    tokenizer_kind: str = "wordpiece"
    vocab_size: int = 32768
    chunk_tokens: int = 32768
    shards: int | None = None
    part: Part = Part()


def prepare(locations: Sequence[str], out: Path, options: Options, processes: int, max_bad: float) -> str:
    """Prepare OUT, or resume or check that; return a summary to print.

    The output does not depend on `processes`, nor on interruptions.

    Raises:
        InputError: a file or more than the share `max_bad` of records are damaged, no documents are left, OUT holds
            something else, or the disk is full. Finished work stays, and the same command resumes it.
    """
    if options.part.of > 1 and not options.tokenizer:
        raise InputError("--part: all parts need the same tokenizer; name it with --tokenizer")
    if output.is_finished(out):
        return _check(locations, out, options)
    work = output.work_folder(out)
    with output.alone(work):
        _Run(locations, out, work, options, processes, max_bad).all()
    return output.summary(out)


def _check(locations: Sequence[str], out: Path, options: Options) -> str:
    source = output.source_of(out)
    downloads = output.work_folder(out) / "inputs"
    files = list(registry.SOURCES[options.source].find(inputs.local_paths(locations, downloads)))
    part = asdict(options.part)
    same_options = source.get("options") == _recorded(options) and source.get("part") == part
    if not same_options or not inputs.same(source, files, downloads):
        raise InputError(output.OTHERWISE.format(out))
    output.check(out)
    return f"{out}: complete already, nothing to do"


def _recorded(options: Options) -> dict[str, Any]:
    """Return the options as a manifest records them: equal for two runs that make the same of the same input."""
    record = asdict(options)
    del record["part"]  # a key of its own in the manifest
    if options.tokenizer:
        record["tokenizer"] = tokenizer.load(Path(options.tokenizer)).fingerprint
    return json.loads(json.dumps(record))


class _Run:
    """One run of all passes; finished results are in the folder `work`."""

    def __init__(
        self, locations: Sequence[str], out: Path, work: Path, options: Options, processes: int, max_bad: float
    ) -> None:
        self.out, self.work, self.options, self.processes = out, work, options, processes
        self.source = registry.SOURCES[options.source]
        self.files = list(self.source.find(inputs.local(locations, work / "inputs")))
        self.totals = Totals(max_bad)

    def all(self) -> None:
        """Do everything that is not finished yet."""
        steps = self._reading()
        spooled = self._read(steps)
        spooled = self._join(steps, spooled) if self.source.join else spooled
        self.near = self._near(spooled) if self.options.near_duplicates is not None else None
        tok = self._tokenizer(spooled)
        self._write(spooled, tok)

    def _folder(self, name: str, *made_of: object) -> Path:
        """Return a folder for the result of `made_of`; remove results of anything else."""
        digest = blake2b(json.dumps(made_of, default=str).encode(), digest_size=16).hexdigest()
        folder = self.work / f"{name}-{digest}"
        for stale in self.work.glob(f"{name}-*"):
            if stale != folder:
                shutil.rmtree(stale)
        make_directory(folder)
        return folder

    def _reading(self) -> Reading:
        options = self.options
        steps = Reading(options.source, options.choices, options.part, options.stages, options.near_duplicates)
        if not options.stages.decontaminate:
            return steps
        table = ngrams.of_collections(options.stages.decontaminate, options.stages.ngram)
        path = self.work / "ngrams.npy"
        near_duplicates.save(path, table)
        return replace(steps, evaluation=str(path), evaluation_sha256=sha256_of(path))

    def _read(self, steps: Reading) -> list[Path]:
        """Return the spool files of all batches."""
        folder = self.work / "read"
        make_directory(folder)
        names: list[str] = []
        total = sum(item["bytes"] for item in inputs.listed(self.files))
        position = 0

        def unfinished() -> Iterator[Batch]:
            nonlocal position
            part = Part() if self.source.join else self.options.part
            for batch in batches(self.source, self.files, self.options.choices, part, steps.identity()):
                names.append(batch.name)
                position = batch.read
                if (folder / batch.name).exists():
                    self.totals.add(spool.about(folder / batch.name))
                else:
                    yield batch

        with meter("read", "MB", total // MEGABYTE) as report:
            for name in workers.run(unfinished(), reading.batch_reader, (steps, folder), self.processes):
                self.totals.add(spool.about(folder / name))
                report(position // MEGABYTE, self.totals.note())
        self.totals.check()
        for stale in {path.name for path in folder.iterdir()}.difference(names):
            (folder / stale).unlink()
        return [folder / name for name in names]

    def _join(self, steps: Reading, fragments: list[Path]) -> list[Path]:
        """Return the spool files of the documents that are joined from fragments."""
        size = sum(spool.about(path)["bytes"] for path in fragments)
        folder = self._folder("joined", [path.name for path in fragments])
        ends = spool.edges(-(-size // JOIN_BYTES) or 1)
        ranges = [reading.Range(tuple(fragments), low, high) for low, high in zip(ends, ends[1:], strict=False)]
        files = [folder / reading.name_of(bounds) for bounds in ranges]
        self._each("join", "ranges", ranges, files, reading.range_joiner, (steps, folder))
        for path in files:
            self.totals.add(spool.about(path))
        return files

    def _near(self, spooled: list[Path]) -> near_duplicates.Result:
        threshold = self.options.near_duplicates
        others = [output.pairs_of(Path(folder), threshold) for folder in self.options.against]
        folder = self._folder("near", [path.name for path in spooled], self._elsewhere_identity)
        ranges = near_duplicates.ranges(near_duplicates.size_of(spooled))
        files = [near_duplicates.pairs_file(folder, bounds) for bounds in ranges]
        self._each("near", "ranges", ranges, files, near_duplicates.comparer, (spooled, [], others, folder))
        return near_duplicates.collect(folder, ranges)

    @cached_property
    def _elsewhere_identity(self) -> list[str]:
        return [sha256_of(Path(folder) / "shards" / manifest.NAME) for folder in self.options.against]

    def _each(
        self,
        what: str,
        unit: str,
        tasks: Sequence[Any],
        files: Sequence[Path],
        start: Callable[..., Callable[[Any], Any]],
        arguments: tuple[Any, ...],
    ) -> None:
        """Do the tasks whose files do not exist yet."""
        left = [task for task, path in zip(tasks, files, strict=True) if not path.exists()]
        for _ in track(workers.run(left, start, arguments, self.processes), what, unit, len(left)):
            pass

    def _tokenizer(self, spooled: list[Path]) -> Tokenizer:
        """Return the tokenizer, copied or trained in the work folder."""
        options = self.options
        if options.tokenizer:
            given = tokenizer.load(Path(options.tokenizer))
            path = self._folder("tokenizer", given.fingerprint) / "tokenizer.json"
            with whole_file(path) as file:
                file.write(read_bytes(given.path))
            return tokenizer.load(path)
        kinds = (options.tokenizer_kind, options.vocab_size, options.held_out, options.keep_duplicates)
        path = self._folder("tokenizer", [file.name for file in spooled], self._removed_identity, kinds)
        path = path / "tokenizer.json"
        if path.exists():
            return tokenizer.load(path)
        dropped = Counter(tally.dropped(self.totals.stages))
        sample = self._sample(spooled, dropped)
        first = next(sample, None)
        if first is None:
            raise output.nothing_left(self.out, dropped, options.held_out)
        print(f"training a vocabulary of {options.vocab_size:,}", flush=True)
        return tokenizer.train(chain([first], sample), options.vocab_size, path, options.tokenizer_kind)

    @cached_property
    def _removed_identity(self) -> list[str]:
        near = [sha256_of(path) for path in (self.near.keys, self.near.elsewhere)] if self.near else []
        return [*self._elsewhere_identity, *near]

    def _sample(self, spooled: list[Path], dropped: Counter[str]) -> Iterator[str]:
        """Yield training texts with the smallest hashes, a fair sample; count the documents that are dropped."""
        size = sum(spool.about(path)["bytes"] for path in spooled)
        high = spool.KEYS * SAMPLE // max(size, SAMPLE)
        for _, document in writing.kept(self._selection(spooled), 0, high, False, dropped):
            yield "\n".join(document.segments)

    def _selection(self, spooled: list[Path]) -> Selection:
        options = self.options
        elsewhere = near = ""
        if options.against:
            path = self._folder("elsewhere", self._removed_identity) / "keys.npy"
            if not path.exists():
                similar = np.load(self.near.elsewhere) if self.near else np.empty(0, spool.KEY)
                same = output.keys_of([Path(folder) for folder in options.against])
                near_duplicates.save(path, np.union1d(same, similar))
            elsewhere = str(path)
        if self.near and options.part.of == 1:  # only `merge` knows the near-duplicates across parts
            near = str(self.near.keys)
        return Selection(tuple(spooled), options.keep_duplicates, options.held_out, near, elsewhere)

    def _write(self, spooled: list[Path], tok: Tokenizer) -> None:
        abouts = [spool.about(path) for path in spooled]
        documents, size = (sum(about[name] for about in abouts) for name in ("records", "bytes"))
        options = self.options
        plan = output.plan(documents, size, options.held_out, options.shards)
        arguments = self._selection(spooled), tok.path, options.chunk_tokens
        made_of = [path.name for path in spooled], self._removed_identity, tok.fingerprint, options.chunk_tokens
        folder = self._folder("written", made_of, options.held_out, options.keep_duplicates, options.shards)
        make_directory(folder / "done")
        files = [writing.finished(folder, shard) for shard in plan]
        self._each("write", "shards", plan, files, writing.shard_writer, (*arguments, folder))
        source = {
            "command": options.source,
            "dialogues": self.source.dialogues,
            "options": _recorded(options),
            "part": asdict(options.part),
            "inputs": inputs.record(self.files),
            "spooled": {"documents": documents, "bytes": size},
            "stages": self.totals.stages,
        }
        output.finish(self.out, folder, plan, tok, source, self.near.pairs if self.near else None)
