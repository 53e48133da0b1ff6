"""Make a collection from files of a published format, in stages: an interrupted command resumes at the next stage.

The stages write into OUT/building.partial, manifest.json last; then everything is only renamed into OUT, manifest.json
again last: without it, a collection cannot be opened. A command that was killed meanwhile leaves the rest to the next.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from deepsiam.data_prep.collections import gaps
from deepsiam.data_prep.collections.collection import (
    FORMAT,
    GRADED,
    MANIFEST,
    PARTS,
    SPLITS,
    TOKENIZER,
    Collection,
    Manifest,
    array_files,
    input_record,
    is_collection,
    name_in,
)
from deepsiam.data_prep.collections.excluded import ExcludedDocuments, write_excluded
from deepsiam.data_prep.collections.files.text_columns import GivenColumns
from deepsiam.data_prep.collections.format import Format, split_and_file
from deepsiam.data_prep.collections.groups import Groups, no_grades
from deepsiam.data_prep.collections.ids import Ids
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.collections.relevant import FOLDER as RELEVANT
from deepsiam.data_prep.collections.relevant import write_relevant
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.collections.write_groups import write_groups
from deepsiam.data_prep.collections.write_texts import remove_temporary, write_texts, write_tokens
from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.data_prep.common.files import (
    lock,
    make_directory,
    os_errors_as_input_errors,
    read_bytes,
    require_once,
    sha256_of,
    sync,
    write_bytes,
)
from deepsiam.data_prep.common.json_file import FileName, parse_json
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.tokenizers.tokenizer import SPLIT, Tokenizer

BUILDING, LOCK = "building.partial", "building.lock"
COMMAND = "command.json"  # in BUILDING: the command and the state of its input
STAGES = 2  # changes with what the stages record


def build(
    name: str,
    inputs: Sequence[Path],
    out: Path,
    tokenizer: Tokenizer,
    workers: int = 1,
    *,
    strict: bool = False,
    columns: GivenColumns = (),
) -> Collection:
    """Make the collection of `inputs`, in the format `name`, in the folder `out`, and open it.

    The bytes of every file are the same for any number of workers. If `out` is itself a BEIR folder, the collection is
    made next to its files. Judgements of unknown queries or documents are left out with a remark, or refused if
    `strict`. `columns` names those of a table, by their roles.

    Raises:
        InputError: the input is bad (naming file and line), `out` has files that a collection would replace, another
            process builds it, or a file cannot be written.
    """
    if columns and not FORMATS[name].takes_columns:
        names = ", ".join(name for name, kind in FORMATS.items() if kind.takes_columns)
        raise InputError(f"--columns: is for tables ({names}): leave it out for {name}")
    reader = FORMATS[name](inputs, columns) if columns else FORMATS[name](inputs)
    if len(inputs) > 1:  # one alone may be no path, as a subset of a BEIR folder
        require_once(split_and_file(path)[1].resolve() for path in inputs)
    _require_room(out, reader, tokenizer)
    command: dict[str, Any] = {"format": name, "inputs": [name_in(path, out) for path in inputs]}
    if columns:
        command["columns"] = columns
    key = json.dumps(
        [STAGES, command, tokenizer.fingerprint, tokenizer.split_special_tokens, _state(reader), strict]
    ).encode()
    built = out / BUILDING
    with _alone(out), os_errors_as_input_errors(out, "write"):
        is_finished, is_same_command = (built / MANIFEST).is_file(), _has_key(built, key)
        if is_finished:
            _publish(built, out)
        if not (is_finished and is_same_command):
            try:
                counts, remarks = _run(_Stages(built, key), reader, tokenizer, workers, strict)
            except InputError as error:
                if not isinstance(error, StoppedError):  # bad input: no later run can use the stages
                    _discard(built)
                raise
            splits = () if reader.classes else reader.splits()
            relevance = {split: Groups.map(built / SPLITS / split).labels for split in splits}
            manifest = {
                "format": FORMAT,
                "command": command,
                "tokenizer": {
                    "fingerprint": tokenizer.fingerprint,
                    "vocab_size": tokenizer.vocab_size,
                    SPLIT: tokenizer.split_special_tokens,
                },
                "counts": counts,
                "classes": list(reader.classes),
                GRADED: [split for split, labels in relevance.items() if not no_grades(labels)],
                "remarks": [*reader.remarks(), *remarks, *_gaps(built, reader, tokenizer.vocab_size)],
                "inputs": [input_record(path, out) for path in track(reader.paths, "hash", "files")],
            }
            _finish(built, manifest, read_bytes(tokenizer.path))
            _publish(built, out)
    return Collection.open(out)


def _require_room(out: Path, reader: Format, tokenizer: Tokenizer) -> None:
    """Raise InputError if the collection would replace an input, or anything that is not a collection's."""
    parts = [out / name for name in (*PARTS, SPLITS)]
    for file in reader.paths:
        if inside := [part for part in parts if file.resolve().is_relative_to(part.resolve())]:
            raise InputError(f"{file}: the collection would replace {inside[0]}: move it, or name another --out")
    if (out / BUILDING).is_dir() or is_collection(out):
        return
    obstacles = [path for path in (*parts, out / MANIFEST) if path.exists()]
    file = out / TOKENIZER
    if file.exists() and (not file.is_file() or file.read_bytes() != read_bytes(tokenizer.path)):
        obstacles.append(file)
    if obstacles:
        raise InputError(f"{obstacles[0]}: exists, and is not a collection's: move it away, or name another --out")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep other processes from building in `out`; remove `out` at the end if nothing was written there."""
    make_directory(out)
    locked = lock(out / LOCK, f"{out}: another process is making this collection: wait for it, or stop it")
    try:
        yield
    finally:
        (out / LOCK).unlink()
        locked.close()
        if not any(out.iterdir()):
            out.rmdir()


class _Stages:
    """The record of finished stages, in a folder that is emptied if the command or its input has changed."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self.folder = folder
        if not _has_key(folder, key):
            _discard(folder)
            make_directory(folder)
            write_bytes(folder / COMMAND, key)

    def do(self, name: str, stage: Callable[[], Any], *, old_folder: Path | None = None) -> Any:
        """Return a stage's counts, from its record or by running it; before a run, delete `old_folder`."""
        record = self.folder / f"{name}.json"
        if not record.is_file():
            if old_folder is not None:
                shutil.rmtree(old_folder, ignore_errors=True)
            counts = stage()
            write_bytes(record, json.dumps(counts).encode())
        return json.loads(read_bytes(record))


def _has_key(built: Path, key: bytes) -> bool:
    return (built / COMMAND).is_file() and read_bytes(built / COMMAND) == key


def _discard(built: Path) -> None:
    """Remove all stages; after a kill, no later run takes the rest of them for finished ones."""
    (built / COMMAND).unlink(missing_ok=True)
    shutil.rmtree(built, ignore_errors=True)


def _run(
    stages: _Stages, reader: Format, tokenizer: Tokenizer, workers: int, strict: bool
) -> tuple[dict[str, Any], list[str]]:
    """Write texts, groups and tokens, which take longest; return the manifest's counts, and remarks on the groups."""
    counts: dict[str, Any] = {}
    remarks: list[str] = []
    splits = reader.splits()
    _require_names(reader, splits)
    for part, texts in zip(PARTS, (reader.corpus, reader.queries), strict=True):
        folder = stages.folder / part
        repeats = reader.repeats is True or reader.repeats == part
        write = partial(write_texts, folder, texts, reader.by_part.get(part, reader.paths), repeats=repeats)
        number, part_remarks = stages.do(part, write, old_folder=folder)
        if reader.labelled or part == PARTS[0]:
            gaps.require_any(number, f"{part}: the input contains no texts", reader)
        counts[part] = {"texts": number}
        remarks += part_remarks
    corpus, queries = (Ids.map(stages.folder / part) for part in PARTS)
    remarks += stages.do("excluded", partial(write_excluded, stages.folder / PARTS[1], reader, queries, corpus))
    excluded = ExcludedDocuments.map(stages.folder / PARTS[1], len(queries), len(corpus))
    counts[SPLITS] = {}
    for split in splits:
        folder = stages.folder / SPLITS / split
        judge = partial(write_groups, folder, reader, split, queries, corpus, excluded, strict)
        counts[SPLITS][split], split_remarks = stages.do(f"split-{split}", judge, old_folder=folder)
        remarks += split_remarks
    for part in PARTS:
        tokenise = partial(write_tokens, stages.folder / part, tokenizer, workers)
        counts[part]["tokens"] = stages.do(f"{part}-tokens", tokenise)
        remove_temporary(stages.folder / part)
    for split in splits:
        relate = partial(write_relevant, stages.folder, tokenizer, split)
        stages.do(f"relevant-{split}", relate, old_folder=stages.folder / SPLITS / split / RELEVANT)
    return counts, remarks


def _require_names(reader: Format, splits: Sequence[str]) -> None:
    """Raise InputError if a split has a name, of one of its files, that the manifest must not have."""
    for split in splits:
        try:
            TypeAdapter(FileName).validate_python(split)
        except ValidationError:
            problem = f"names the split {split!r:.80}; rename it with only letters, digits, '_', '-' and '.'"
            raise InputError(f"{reader.by_split[split][0]}: {problem}") from None


def _gaps(built: Path, reader: Format, vocab_size: int) -> Iterator[str]:
    """Yield a line for each thing that a finished build lacks."""
    corpus, queries = (Texts.map(built / part, vocab_size) for part in PARTS)
    yield from gaps.texts_without_words(corpus)
    if not reader.classes:
        yield from gaps.labels_and_relevance(built / SPLITS, reader, queries)


def _finish(built: Path, manifest: dict[str, Any], tokenizer: bytes) -> None:
    """Write the tokenizer and, last, the manifest next to the folders of a build."""
    arrays = array_files(built)
    manifest["arrays"] = {
        path.relative_to(built).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in arrays
    }
    for path in arrays:
        sync(path)
    write_bytes(built / TOKENIZER, tokenizer)
    content = (json.dumps(manifest, indent=1) + "\n").encode()
    parse_json(content, built / MANIFEST, Manifest, "it would not open, so what was there before is kept")
    write_bytes(built / MANIFEST, content)


def _publish(built: Path, out: Path) -> None:
    """Move what is left of a finished build into `out`, the manifest last; this needs no space on the disk."""
    (out / MANIFEST).unlink(missing_ok=True)
    for name in (*PARTS, SPLITS, TOKENIZER):
        if (built / name).exists():
            if (out / name).is_dir():
                os.replace(out / name, built / f"{name}.old")
            os.replace(built / name, out / name)
    (built / COMMAND).unlink(missing_ok=True)  # from now on nothing of the stages can be used again
    sync(out)
    os.replace(built / MANIFEST, out / MANIFEST)
    sync(out)
    _discard(built)


def _state(reader: Format) -> list[list[Any]]:
    """Return the sizes and times of the input files, which tell whether they changed since an earlier try."""
    files = reader.paths
    for path in files:
        if not path.is_file():
            why = "not a plain file; name the files themselves" if path.exists() else "no such file"
            raise InputError(f"{path}: {why}")
        if (name := os.fsencode(path).decode(errors="replace")) != os.fspath(path):
            raise InputError(f"{name}: its name is not UTF-8, as in a manifest: rename it, or its folder")
    return [[os.fspath(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
