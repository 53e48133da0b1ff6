"""`python -m data_prep SOURCE INPUT...`: from raw files to shards, in passes that a killed run takes up again.

    OUT/shards/      documents in the order of the hash of their text, tokenizer.json, manifest.json
    OUT/held_out/    the same of a fixed share of them, where one was asked for

1. read: batches of the input become spooled documents that have gone through every stage (reading.py);
2. near-duplicates are looked for, where that was asked for (near_pass.py);
3. a tokenizer is trained on a sample, or an existing one taken;
4. write: each range of hashes becomes a shard (writing.py).

What is finished of each lies in OUT/.partial under a name that says what it was made of. Everything is moved into place
at the end, the shards last.
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

from data_prep import (
    dataset,
    inputs,
    manifest,
    near_pass,
    ngrams,
    reading,
    sources,
    spool,
    tally,
    tokenizer,
    workers,
    writing,
)
from data_prep.batches import Batch, Part, batches
from data_prep.errors import InputError
from data_prep.files import make_directory, read_bytes, sha256_of, whole_file
from data_prep.progress import meter, track
from data_prep.reading import Reading
from data_prep.stages import Options as StageOptions
from data_prep.tally import Totals
from data_prep.tokenizer import Tokenizer
from data_prep.writing import Selection

SAMPLE = 1 << 25  # bytes of text that a tokenizer is learned from
JOIN_BYTES = 1 << 26  # of the fragments that are joined at once
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Options:
    """What determines the output, beside the input."""

    source: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    stages: StageOptions = field(default_factory=StageOptions)
    keep_duplicates: bool = False
    near_duplicates: float | None = None
    against: tuple[str, ...] = ()
    held_out: float = 0.0
    tokenizer: str = ""  # the path of one; "": one is trained
    tokenizer_kind: str = "wordpiece"
    vocab_size: int = 32768
    chunk_tokens: int = 32768
    shards: int | None = None
    part: Part = Part()


def prepare(locations: Sequence[str], out: Path, options: Options, processes: int, max_bad: float) -> str:
    """Prepares OUT, goes on with it, or finds it prepared; returns a summary to print.

    The output does not depend on `processes`, nor on how often the run was interrupted.

    Raises:
        InputError: the input is damaged or too many of its records are (more than the share `max_bad`), nothing is left
            of it, OUT is something else, or the disk refused. What is finished stays, and the same command goes on.
    """
    if options.part.of > 1 and not options.tokenizer:
        raise InputError("--part: all parts must be of one tokenizer; name it with --tokenizer")
    if dataset.is_finished(out):
        return _check(locations, out, options)
    work = dataset.work_folder(out)
    with dataset.alone(work):
        _Run(locations, out, work, options, processes, max_bad).all()
    return dataset.summary(out)


def _check(locations: Sequence[str], out: Path, options: Options) -> str:
    made = dataset.source_of(out)
    downloads = dataset.work_folder(out) / "inputs"
    files = list(sources.SOURCES[options.source].find(inputs.places(locations, downloads)))
    part = asdict(options.part)
    if made.get("options") != _recorded(options) or made.get("part") != part or not inputs.same(made, files, downloads):
        raise InputError(dataset.OTHERWISE.format(out))
    dataset.check(out)
    return f"{out}: complete already, nothing to do"


def _recorded(options: Options) -> dict[str, Any]:
    """The options as a manifest keeps them: what two runs share that make the same of the same input."""
    record = asdict(options)
    del record["part"]  # stands beside them
    if options.tokenizer:
        record["tokenizer"] = tokenizer.load(Path(options.tokenizer)).fingerprint
    return json.loads(json.dumps(record))


class _Run:
    """One run of all passes; `work` is where what is finished lies."""

    def __init__(
        self, locations: Sequence[str], out: Path, work: Path, options: Options, processes: int, max_bad: float
    ) -> None:
        self.out, self.work, self.options, self.processes = out, work, options, processes
        self.source = sources.SOURCES[options.source]
        self.files = list(self.source.find(inputs.local(locations, work / "inputs")))
        self.totals = Totals(max_bad)

    def all(self) -> None:
        """Everything that is not finished yet."""
        recipe = self._reading()
        spooled = self._read(recipe)
        spooled = self._join(recipe, spooled) if self.source.join else spooled
        self.near = self._near(spooled) if self.options.near_duplicates is not None else None
        tok = self._tokenizer(spooled)
        self._write(spooled, tok)

    def _folder(self, name: str, *made_of: object) -> Path:
        """A folder for what is made of `made_of`; what was made of anything else before is removed."""
        digest = blake2b(json.dumps(made_of, default=str).encode(), digest_size=16).hexdigest()
        folder = self.work / f"{name}-{digest}"
        for stale in self.work.glob(f"{name}-*"):
            if stale != folder:
                shutil.rmtree(stale)
        make_directory(folder)
        return folder

    def _reading(self) -> Reading:
        options = self.options
        recipe = Reading(options.source, options.choices, options.part, options.stages, options.near_duplicates)
        if not options.stages.decontaminate:
            return recipe
        table = ngrams.of_collections(options.stages.decontaminate, options.stages.ngram)
        path = self.work / "ngrams.npy"
        near_pass.save(path, table)
        return replace(recipe, evaluation=str(path), evaluation_sha256=sha256_of(path))

    def _read(self, recipe: Reading) -> list[Path]:
        """The spool files of all batches."""
        folder = self.work / "read"
        make_directory(folder)
        names: list[str] = []
        total = sum(item["bytes"] for item in inputs.listed(self.files))
        position = 0

        def unfinished() -> Iterator[Batch]:
            nonlocal position
            part = Part() if self.source.join else self.options.part
            for batch in batches(self.source, self.files, self.options.choices, part, recipe.identity()):
                names.append(batch.name)
                position = batch.read
                if (folder / batch.name).exists():
                    self.totals.add(spool.about(folder / batch.name))
                else:
                    yield batch

        with meter("read", "MB", total // MEGABYTE) as report:
            for name in workers.run(unfinished(), reading.batch_reader, (recipe, folder), self.processes):
                self.totals.add(spool.about(folder / name))
                report(position // MEGABYTE, self.totals.note())
        self.totals.check()
        for stale in {path.name for path in folder.iterdir()}.difference(names):
            (folder / stale).unlink()
        return [folder / name for name in names]

    def _join(self, recipe: Reading, fragments: list[Path]) -> list[Path]:
        """The spool files of the documents that are made of fragments."""
        size = sum(spool.about(path)["bytes"] for path in fragments)
        folder = self._folder("joined", [path.name for path in fragments])
        ends = spool.edges(-(-size // JOIN_BYTES) or 1)
        wanted = [reading.Range(tuple(fragments), low, high) for low, high in zip(ends, ends[1:], strict=False)]
        made = [folder / reading.name_of(one) for one in wanted]
        self._each("join", "ranges", wanted, made, reading.range_joiner, (recipe, folder))
        for path in made:
            self.totals.add(spool.about(path))
        return made

    def _near(self, spooled: list[Path]) -> near_pass.Found:
        threshold = self.options.near_duplicates
        others = [dataset.pairs_of(Path(folder), threshold) for folder in self.options.against]
        folder = self._folder("near", [path.name for path in spooled], self._elsewhere_identity)
        wanted = near_pass.ranges(near_pass.size_of(spooled))
        made = [near_pass.pairs_file(folder, one) for one in wanted]
        self._each("near", "ranges", wanted, made, near_pass.comparer, (spooled, [], others, folder))
        return near_pass.collect(folder, wanted)

    @cached_property
    def _elsewhere_identity(self) -> list[str]:
        return [sha256_of(Path(folder) / "shards" / manifest.NAME) for folder in self.options.against]

    def _each(
        self,
        what: str,
        unit: str,
        tasks: Sequence[Any],
        made: Sequence[Path],
        start: Callable[..., Callable[[Any], Any]],
        arguments: tuple[Any, ...],
    ) -> None:
        """Does the tasks whose files are not there yet."""
        left = [task for task, path in zip(tasks, made, strict=True) if not path.exists()]
        for _ in track(workers.run(left, start, arguments, self.processes), what, unit, len(left)):
            pass

    def _tokenizer(self, spooled: list[Path]) -> Tokenizer:
        """The tokenizer, as a file of this run's own."""
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
            raise dataset.nothing_left(self.out, dropped)
        print(f"learning a vocabulary of {options.vocab_size:,}", flush=True)
        return tokenizer.train(chain([first], sample), options.vocab_size, path, options.tokenizer_kind)

    @cached_property
    def _removed_identity(self) -> list[str]:
        near = [sha256_of(path) for path in (self.near.keys, self.near.elsewhere)] if self.near else []
        return [*self._elsewhere_identity, *near]

    def _sample(self, spooled: list[Path], dropped: Counter[str]) -> Iterator[str]:
        """Texts of the first hashes: a fair sample of those that shards are made of; counts those that are not."""
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
                alike = np.load(self.near.elsewhere) if self.near else np.empty(0, spool.KEY)
                near_pass.save(path, np.union1d(dataset.keys_of([Path(folder) for folder in options.against]), alike))
            elsewhere = str(path)
        if self.near and options.part.of == 1:  # the near-duplicates of all parts are known to `merge` alone
            near = str(self.near.keys)
        return Selection(tuple(spooled), options.keep_duplicates, options.held_out, near, elsewhere)

    def _write(self, spooled: list[Path], tok: Tokenizer) -> None:
        abouts = [spool.about(path) for path in spooled]
        documents, size = (sum(about[name] for about in abouts) for name in ("records", "bytes"))
        options = self.options
        plan = dataset.plan(documents, size, options.held_out, options.shards)
        arguments = self._selection(spooled), tok.path, options.chunk_tokens
        made_of = [path.name for path in spooled], self._removed_identity, tok.fingerprint, options.chunk_tokens
        folder = self._folder("written", made_of, options.held_out, options.keep_duplicates, options.shards)
        make_directory(folder / "done")
        made = [writing.finished(folder, shard) for shard in plan]
        self._each("write", "shards", plan, made, writing.shard_writer, (*arguments, folder))
        source = {
            "command": options.source,
            "options": _recorded(options),
            "part": asdict(options.part),
            "inputs": inputs.record(self.files),
            "spooled": {"documents": documents, "bytes": size},
            "stages": self.totals.stages,
        }
        dataset.finish(self.out, folder, plan, tok, source, self.near.pairs if self.near else None)
