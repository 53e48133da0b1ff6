"""Write the texts of a collection: UTF-8 and ids in the order of the input, then tokens by any number of workers."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Appender, Rows
from deepsiam.data_prep.collections.format import Text
from deepsiam.data_prep.collections.ids import Ids, hash_of, repeated, write_index
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.workers import run
from deepsiam.data_prep.sources.bytes_read import track_files
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

BATCH = 1_000  # texts written at once
TASK = 20_000  # texts that a worker tokenises at once
JOINT = b" "  # joins the parts of a text


def write_texts(
    folder: Path, texts: Callable[[], Iterable[Text]], files: Sequence[Path], *, repeats: bool
) -> tuple[int, list[str]]:
    """Write text.npy, the ids and their index into a new folder.

    Return the number of texts, and remarks on what was left out.

    cuts.npy holds where each part ends in the bytes of its text, for `write_tokens`. A text whose id occurred before is
    left out; with `repeats`, without a remark, and memory grows by some 150 bytes a text. The texts are read from
    `files`; without `repeats`, a second time if one is repeated.
    """
    folder.mkdir(parents=True)
    if repeats:
        return _write(folder, _first_of_each(texts()), files), []
    number = _write(folder, texts(), files)
    if not number or not (repeat_ids := repeated(Ids.map(folder))):
        return number, []
    _require_equal(folder, texts, repeat_ids)
    where = _text(texts, next(iter(repeat_ids))).where
    number = _write(folder, (text for at, text in enumerate(texts()) if at not in repeat_ids), files)
    return number, [f"{folder.name}: left out {len(repeat_ids):,} that occur before (the first: {where})"]


def _require_equal(folder: Path, texts: Callable[[], Iterable[Text]], repeats: Mapping[int, int]) -> None:
    """Raise InputError unless the written texts of each repeated id are the same."""
    text = Rows.map(folder / "text.npy", folder / "text_ends.npy", [np.uint8])
    cuts = Rows.map(folder / "cuts.npy", folder / "cut_ends.npy", [np.int64])
    for number, source_number in repeats.items():
        if any(rows[number].tobytes() != rows[source_number].tobytes() for rows in (text, cuts)):
            source, copy = _text(texts, source_number), _text(texts, number)
            raise InputError(
                f"{copy.where}: id {copy.id!r} is already {source.where.before(copy.where)}, of another text"
            )


def _text(texts: Callable[[], Iterable[Text]], number: int) -> Text:
    return next(islice(texts(), number, None))


def _write(folder: Path, texts: Iterable[Text], files: Sequence[Path]) -> int:
    """Write texts in place of those in the folder; return their number."""
    hashes = array("Q")
    with ExitStack() as stack:
        text, ids = (RowsWriter(stack, folder, *names) for names in (("text", "text_ends"), ("ids", "id_ends")))
        cuts = RowsWriter(stack, folder, "cuts", "cut_ends", np.int64)
        source = track_files(texts, folder.name, "texts", files)
        while batch := list(islice(source, BATCH)):
            parts = [[_utf8(part, item) for part in item.parts] for item in batch]
            text.extend([np.frombuffer(JOINT.join(pieces), np.uint8) for pieces in parts])
            ids.extend([np.frombuffer(_utf8(item.id, item), np.uint8) for item in batch])
            cuts.extend(
                [np.cumsum([len(part) for part in pieces]) + len(JOINT) * np.arange(len(pieces)) for pieces in parts]
            )
            hashes.extend(hash_of(item.id) for item in batch)
    write_index(folder, np.frombuffer(hashes, np.uint64))
    return len(hashes)


def _utf8(text: str, item: Text) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{item.where}: has half a character (a lone surrogate), which UTF-8 cannot hold") from None


class RowsWriter:
    """Write the two arrays of `Rows`."""

    def __init__(self, stack: ExitStack, folder: Path, flat: str, ends: str, dtype: type = np.uint8) -> None:
        self.flat = stack.enter_context(Appender(folder / f"{flat}.npy", dtype))
        self.ends = stack.enter_context(Appender(folder / f"{ends}.npy", np.int64))

    def extend(self, rows: Sequence[np.ndarray]) -> None:
        """Append rows."""
        self.extend_flat(np.concatenate(rows), np.cumsum([len(row) for row in rows]))

    def extend_flat(self, flat: np.ndarray, ends: np.ndarray) -> None:
        """Append rows that are one array already."""
        self.ends.extend(self.flat.length + ends)
        self.flat.extend(flat)


def _first_of_each(texts: Iterable[Text]) -> Iterator[Text]:
    contents: dict[int, int] = {}  # hash of the id -> hash of the text
    for text in texts:
        name, content = hash_of(text.id), hash_of(" ".join(text.parts))
        if name not in contents:
            contents[name] = content
            yield text
        elif contents[name] != content:
            raise InputError(f"{text.where}: id {text.id!r} has another text on an earlier line")


class TextRange(NamedTuple):
    """Texts to tokenise, by their numbers, and the file for their tokens."""

    start: int
    end: int
    file: Path


def write_tokens(folder: Path, tokenizer: Tokenizer, workers: int) -> int:
    """Write tokens.npy and, where a text has several parts, parts.npy; return the number of tokens.

    The files of the tasks are kept, so that an interrupted command resumes at the next task: see `remove_temporary`.
    """
    count = len(np.load(folder / "text_ends.npy", mmap_mode="r"))
    tasks = [
        TextRange(first, min(first + TASK, count), folder / f"tokens-{first // TASK:05}.npz")
        for first in range(0, count, TASK)
    ]
    unfinished = [task for task in tasks if not task.file.exists()]
    with meter(f"tokenise {folder.name}", "texts", count) as report:
        done_texts = count - sum(task.end - task.start for task in unfinished)
        for texts in run(unfinished, tokenise, (folder, tokenizer), min(workers, len(unfinished) or 1)):
            done_texts += texts
            report(done_texts, "")
    with ExitStack() as stack:
        tokens = RowsWriter(stack, folder, "tokens", "token_ends", tokenizer.dtype.type)
        parts = RowsWriter(stack, folder, "parts", "part_ends", np.int64)
        for task in tasks:
            with np.load(task.file, allow_pickle=False) as arrays:
                tokens.extend_flat(arrays["tokens"], arrays["token_ends"])
                parts.extend_flat(arrays["parts"], arrays["part_ends"])
        total, in_parts = tokens.flat.length, parts.flat.length > count
    for name in () if in_parts else ("parts", "part_ends"):
        (folder / f"{name}.npy").unlink()
    return total


def remove_temporary(folder: Path) -> None:
    """Remove what only `write_tokens` reads, after its result is recorded: a run killed before needs it once more."""
    for file in [*folder.glob("tokens-*"), folder / "cuts.npy", folder / "cut_ends.npy"]:
        file.unlink(missing_ok=True)


def tokenise(folder: Path, tokenizer: Tokenizer) -> Callable[[TextRange], int]:
    """Start a worker: the function that writes the tokens of a task and returns its number of texts."""
    text = Rows.map(folder / "text.npy", folder / "text_ends.npy", [np.uint8])
    cuts = Rows.map(folder / "cuts.npy", folder / "cut_ends.npy", [np.int64])

    def work(task: TextRange) -> int:
        items = ((i, list(_parts(text[i], cuts[i]))) for i in range(task.start, task.end))
        encoded = [tokens for _, tokens in tokenizer.encode_batches(items)]  # of every part of every text
        flat = [np.concatenate([np.empty(0, tokenizer.dtype), *parts]) for parts in encoded]
        ends = [np.cumsum([len(part) for part in parts], dtype=np.int64) for parts in encoded]
        arrays: dict[str, Any] = {}
        for name, rows in (("token", flat), ("part", ends)):
            arrays[f"{name}s"] = np.concatenate(rows)
            arrays[f"{name}_ends"] = np.cumsum([len(row) for row in rows], dtype=np.int64)
        with whole_file(task.file) as file:
            np.savez(file, **arrays)
        return task.end - task.start

    return work


def _parts(text: np.ndarray, cuts: np.ndarray) -> Iterator[str]:
    content, start = text.tobytes(), 0
    for end in cuts.tolist():
        yield content[start:end].decode()
        start = end + len(JOINT)
