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
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common import workers
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import in_a_folder, make_directory, read_bytes, save_array, sha256_of, write_bytes
from deepsiam.data_prep.common.progress import BYTES, meter
from deepsiam.data_prep.prepare import (
    inputs,
    near_duplicates,
    ngrams,
    output,
    reading,
    rejected,
    spool,
    tally,
    texts,
    writing,
)
from deepsiam.data_prep.prepare.batches import Batch, Part, batches
from deepsiam.data_prep.prepare.options import Options, check_inputs, check_options
from deepsiam.data_prep.prepare.reading import Reading
from deepsiam.data_prep.prepare.tally import Totals
from deepsiam.data_prep.prepare.writing import Selection
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.sources import cleaned, compressed, registry
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

SAMPLE = 1 << 25  # bytes of text that a tokenizer is trained on
JOIN_BYTES = 1 << 26  # of fragments that are joined at once


def prepare(
    locations: Sequence[str], out: Path, options: Options, processes: int, max_bad: float, rejects: Path | None = None
) -> str:
    """Prepare OUT, or resume or check it; return a summary to print.

    The output does not depend on `processes`, on `rejects` (the file for what is left out), nor on interruptions.

    Raises:
        InputError: a file or more than the share `max_bad` of records are damaged, no documents are left, OUT holds
            something else, or the disk is full. Finished work stays, and the same command resumes it.
    """
    check_options(options)
    if rejects:
        in_a_folder(rejects)
    if (texts if options.text else output).is_finished(out):
        if rejects and not rejects.exists():
            raise InputError(f"{out}: is complete already; to write {rejects}, choose another --out or remove it")
        return _check(locations, out, options)
    work = output.work_folder(out)
    if options.text:
        texts.check_free(out)
    check_inputs(locations, options)
    is_new = not work.exists()
    with output.alone(work):
        mark = work / output.OF_TEXT  # a run that makes text, not shards
        mark.touch() if options.text else mark.unlink(missing_ok=True)
        run = _Run(locations, out, work, options, processes, max_bad, rejects)
        try:
            run.all()
        except InputError:
            if is_new and run.totals.nothing_is_sound:  # the command for another kind of file: nothing to resume
                for folder in filter(Path.is_dir, list(work.iterdir())):
                    shutil.rmtree(folder)
            raise
    return (texts if options.text else output).summary(out)


def _check(locations: Sequence[str], out: Path, options: Options) -> str:
    source = texts.source_of(out) if options.text else output.source_of(out)
    downloads = output.work_folder(out) / "inputs"
    paths = inputs.local_paths(locations, downloads)
    files = inputs.found(registry.SOURCES[options.source], paths, _written(out, options))
    part = asdict(options.part)
    same_options = source["options"] == options.recorded() and source["part"] == part
    manifest_file = out / cleaned.FOLDER / cleaned.NAME if options.text else out / "shards" / manifest.NAME
    if not same_options or not inputs.same(source, files, downloads, manifest_file):
        raise InputError(output.MADE_DIFFERENTLY.format(out))
    (texts if options.text else output).check(out)
    return f"{out}: complete already, nothing to do"


def _written(out: Path, options: Options) -> list[Path]:
    """Return the folders that preparations leave in OUT, none of which this one reads."""
    reads_text = registry.SOURCES[options.source] is cleaned.CLEANED
    texts_too = options.text or (texts.is_finished(out) and not reads_text)
    return [out / name for name in ((cleaned.FOLDER, *output.SPLITS) if texts_too else output.SPLITS)]


class _Run:
    """One run of all passes; finished results are in the folder `work`."""

    def __init__(
        self,
        locations: Sequence[str],
        out: Path,
        work: Path,
        options: Options,
        processes: int,
        max_bad: float,
        rejects: Path | None,
    ) -> None:
        self.out, self.work, self.options, self.processes, self.rejects = out, work, options, processes, rejects
        self.results: list[Path] = []  # of all tasks of all passes, in order
        self.source = registry.SOURCES[options.source]
        self.files = inputs.found(self.source, inputs.local(locations, work / "inputs"), _written(out, options))
        self.pairs = self.source.are_pairs(self.files, options.choices)
        self.dialogues = self.source.are_dialogues(self.files, options.choices)
        self.sentences = not (self.dialogues or self.pairs)
        self.elsewhere_identity = [sha256_of(Path(folder) / "shards" / manifest.NAME) for folder in options.against]
        self.totals = Totals(max_bad)
        self.cut_off: dict[str, int] = {}  # the sound records of files that end early, by name

    def all(self) -> None:
        """Do everything that is not finished yet."""
        steps = self._reading()
        spooled = self._read(steps)
        spooled = self._join(steps, spooled) if self.source.join else spooled
        self.near = self._near(spooled) if self.options.near_duplicates is not None else None
        if self.options.text:
            self._write_text(spooled)
        else:
            self._write(spooled, self._tokenizer(spooled))

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
        settings = options.source, options.choices, options.part, options.stages, self.pairs, options.near_duplicates
        steps = Reading(*settings, rejected=self.rejects is not None)
        if not options.stages.decontaminate:
            return steps
        table = ngrams.collection_ngrams(options.stages.decontaminate, options.stages.ngram)
        path = self.work / "ngrams.npy"
        save_array(path, table)
        return replace(steps, evaluation=str(path), evaluation_sha256=sha256_of(path))

    def _read(self, steps: Reading) -> list[Path]:
        """Return the spool files of all batches."""
        folder = self.work / "read"
        make_directory(folder)
        names: list[str] = []
        size = sum(item["bytes"] for item in inputs.listed(self.files))
        position = 0
        options = self.options

        def unfinished() -> Iterator[Batch]:
            nonlocal position
            part = Part() if self.source.join else options.part
            cut_off = self.cut_off if options.accept_truncated else None
            identity = steps.identity()
            for batch in batches(self.source, self.files, options.choices, part, identity, options.limit, cut_off):
                names.append(batch.name)
                position = batch.bytes_read
                if (folder / batch.name).exists():
                    self.totals.add(spool.about(folder / batch.name))
                else:
                    yield batch

        total = size if options.limit is None else None
        with compressed.inflating_with(self.processes), meter("read", BYTES, total, self.source.later) as report:
            for name in workers.run(unfinished(), reading.batch_reader, (steps, folder), self.processes):
                self.totals.add(spool.about(folder / name))
                report(position, self.totals.note())
        for name, records in self.cut_off.items():
            print(f"{name} is cut off: the {records:,} records before that are used", file=sys.stderr)
        self.totals.check()
        self.results = [folder / name for name in names]
        for stale in set(folder.iterdir()).difference(self.results, map(rejected.beside, self.results)):
            stale.unlink()
        return self.results

    def _join(self, steps: Reading, fragments: list[Path]) -> list[Path]:
        """Return the spool files of the documents that are joined from fragments."""
        size = sum(spool.about(path)["bytes"] for path in fragments)
        folder = self._folder("joined", [path.name for path in fragments])
        ranges = spool.ranges(size, JOIN_BYTES)
        files = [folder / reading.name_of(bounds) for bounds in ranges]
        arguments = steps, fragments, folder
        workers.complete(ranges, files, reading.range_joiner, arguments, self.processes, "join", "ranges")
        for path in files:
            self.totals.add(spool.about(path))
        self.results = [*self.results, *files]
        return files

    def _near(self, spooled: list[Path]) -> near_duplicates.Result:
        threshold = self.options.near_duplicates
        other_bands = [output.bands_of(Path(folder), threshold) for folder in self.options.against]
        folder = self._folder("near", _named(spooled), self.elsewhere_identity)
        return near_duplicates.search(spooled, [], other_bands, folder, self.processes)

    def _tokenizer(self, spooled: list[Path]) -> Tokenizer:
        """Return the tokenizer, copied or trained in the work folder."""
        options = self.options
        if options.tokenizer:
            source_tokenizer = tokenizer.load(Path(options.tokenizer))
            path = self._folder("tokenizer", source_tokenizer.fingerprint) / "tokenizer.json"
            write_bytes(path, read_bytes(source_tokenizer.path))
            return tokenizer.load(path)
        kinds = (options.tokenizer_kind, options.vocab_size, options.held_out, options.keep_duplicates)
        path = self._folder("tokenizer", _named(spooled), self._removed_identity, kinds)
        path = path / "tokenizer.json"
        if path.exists():
            return tokenizer.load(path)
        dropped = Counter(tally.dropped(self.totals.stages))
        sample = self._sample(spooled, dropped)
        first_text = next(sample, None)
        if first_text is None:
            raise output.nothing_left(self.out, dropped, options.held_out)
        print(f"training a vocabulary of {options.vocab_size:,}", flush=True)
        tok = tokenizer.train(chain([first_text], sample), options.vocab_size, path, options.tokenizer_kind)
        if tok.vocab_size < options.vocab_size:
            print(f"the text has pieces for a vocabulary of {tok.vocab_size:,} only", flush=True)
        return tok

    @cached_property
    def _removed_identity(self) -> list[str]:
        near_hashes = [sha256_of(path) for path in (self.near.keys, self.near.elsewhere)] if self.near else []
        return [*self.elsewhere_identity, *near_hashes]

    def _sample(self, spooled: list[Path], dropped: Counter[str]) -> Iterator[str]:
        """Yield training texts with the smallest hashes, a fair sample; count the documents that are dropped."""
        size = sum(spool.about(path)["bytes"] for path in spooled)
        high = spool.KEYS * SAMPLE // max(size, SAMPLE)
        for _, document in writing.kept(self._selection(spooled), 0, high, False, dropped):
            yield (" " if self.sentences else "\n").join(document.segments)

    def _selection(self, spooled: list[Path]) -> Selection:
        options = self.options
        elsewhere = near_file = ""
        if options.against:
            path = self._folder("elsewhere", self._removed_identity) / "keys.npy"
            if not path.exists():
                similar = np.load(self.near.elsewhere) if self.near else np.empty(0, spool.KEY)
                equal_keys = output.keys_of([Path(folder) for folder in options.against])
                save_array(path, np.union1d(equal_keys, similar))
            elsewhere = str(path)
        if self.near and options.part.of == 1:  # only `merge` knows the near-duplicates across parts
            near_file = str(self.near.keys)
        keeps_rejects = self.rejects is not None
        return Selection(tuple(spooled), options.keep_duplicates, options.held_out, near_file, elsewhere, keeps_rejects)

    def _write(self, spooled: list[Path], tok: Tokenizer) -> None:
        documents, size = _size(spooled)
        options = self.options
        plan = output.plan(documents, size, options.held_out, options.shards)
        folder = self._write_folder(spooled, tok.fingerprint, options.chunk_tokens, options.held_out)
        files = [writing.finished(folder, shard) for shard in plan]
        arguments = self._selection(spooled), tok.path, options.chunk_tokens, folder, self.sentences
        workers.complete(plan, files, writing.shard_writer, arguments, self.processes, "write", "shards")
        self._collect(files)
        pairs = self.near.pairs if self.near else None
        output.finish(self.out, folder, plan, tok, self._made(spooled), pairs)

    def _write_text(self, spooled: list[Path]) -> None:
        plan = texts.plan(*_size(spooled), self.options.shards)
        folder = self._write_folder(spooled, cleaned.FOLDER)
        files = [writing.finished(folder, shard) for shard in plan]
        arguments = self._selection(spooled), self.options.source, folder
        workers.complete(plan, files, texts.writer, arguments, self.processes, "write", "files")
        self._collect(files)
        texts.finish(self.out, folder, plan, self._made(spooled))

    def _collect(self, result_files: list[Path]) -> None:
        if self.rejects:
            rejected.collect([*self.results, *result_files], self.rejects)

    def _write_folder(self, spooled: list[Path], *how: object) -> Path:
        made_of = _named(spooled), self._removed_identity, self.rejects is not None, *how
        folder = self._folder("written", made_of, self.options.keep_duplicates, self.options.shards)
        make_directory(folder / "done")
        return folder

    def _made(self, spooled: list[Path]) -> dict[str, Any]:
        """Return the manifest's record of how the documents were made, without the removal of duplicates."""
        documents, size = _size(spooled)
        return {
            "command": self.options.source,
            "dialogues": self.dialogues,
            "pairs": self.pairs,
            "options": self.options.recorded(),
            "part": asdict(self.options.part),
            "inputs": inputs.record(self.files, hashed=self.options.limit is None),
            "cut_off": self.cut_off,
            "spooled": {"documents": documents, "bytes": size},
            "stages": tally.shortened(self.totals.stages),
        }


def _named(spooled: list[Path]) -> list[str]:
    """Return what tells spool files from those of other input or options: joined ones are told by their folder."""
    return [f"{path.parent.name}/{path.name}" for path in spooled]


def _size(spooled: list[Path]) -> tuple[int, int]:
    abouts = [spool.about(path) for path in spooled]
    return sum(about["records"] for about in abouts), sum(about["bytes"] for about in abouts)
