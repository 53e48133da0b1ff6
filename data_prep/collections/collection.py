"""A retrieval collection: a BEIR folder with its tokens, which are memory-mapped.

corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line; title may be absent
queries.jsonl       {"_id": ..., "text": ...} a line
qrels/SPLIT.tsv     a header line, then query-id TAB corpus-id TAB score
pools/SPLIT.txt     optional: the corpus ids that SPLIT is ranked among, one a line
tokenizer.json, tokens/     written by `tokenize`
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data_prep.common.errors import InputError
from data_prep.common.files import os_errors_as_input_errors, read_bytes, whole_file, whole_folder
from data_prep.common.progress import track
from data_prep.tokenizers import tokenizer as tokenizers
from data_prep.tokenizers.tokenizer import Tokenizer

PARTS = ("corpus", "queries")
HEADER = ["query-id", "corpus-id", "score"]


@dataclass(frozen=True)
class TokenTexts:
    """Texts as token ids without special tokens, memory-mapped: text i is flat[ends[i - 1]:ends[i]]."""

    ids: list[str]
    flat: np.ndarray  # uint16 or uint32
    ends: np.ndarray  # int64

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.ids)

    def tokens(self, i: int) -> np.ndarray:
        """The token ids of text i; empty for an empty text."""
        return self.flat[self.ends[i - 1] if i else 0 : self.ends[i]]

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each id."""
        return {name: i for i, name in enumerate(self.ids)}


@dataclass(frozen=True)
class Collection:
    """An opened collection."""

    directory: Path
    tokenizer: Tokenizer
    corpus: TokenTexts
    queries: TokenTexts

    @classmethod
    def open(cls, directory: Path) -> "Collection":
        """Open a tokenised BEIR folder and check that its tokens are those of its texts.

        Raises:
            InputError: a file is missing or damaged (naming file and line), or the tokens are missing or stale (naming
                the command that writes them).
        """
        directory = Path(directory)
        ids = {}
        digests = {}
        for part in PARTS:
            reader = JsonLines(directory / f"{part}.jsonl")
            ids[part] = [name for name, _ in reader]
            digests[part] = reader.sha256
        remedy = f"run: python -m data_prep collection {directory} --tokenizer TOKENIZER.json"
        state = directory / "tokens" / "tokens.json"
        if not state.is_file():
            raise InputError(f"{directory}: not tokenised; {remedy}")
        tokenizer = tokenizers.load(directory / "tokenizer.json")
        try:
            recorded = json.loads(read_bytes(state))
        except ValueError as error:
            raise InputError(f"{state}: not JSON; {remedy}") from error
        if recorded != {"fingerprint": tokenizer.fingerprint, **digests}:
            raise InputError(f"{directory}: the texts or tokenizer.json changed since tokenising; {remedy}")
        texts = {part: _map(directory, part, ids[part], tokenizer, remedy) for part in PARTS}
        return cls(directory, tokenizer, texts["corpus"], texts["queries"])

    def corpus_texts(self) -> list[str]:
        """Title and text of each document, joined by a space, in the order of `corpus.ids`."""
        return [text for _, text in JsonLines(self.directory / "corpus.jsonl")]

    def query_texts(self) -> list[str]:
        """The text of each query in the order of `queries.ids`."""
        return [text for _, text in JsonLines(self.directory / "queries.jsonl")]

    def splits(self) -> list[str]:
        """The names of the splits that have relevance judgements."""
        return sorted(path.stem for path in (self.directory / "qrels").glob("*.tsv"))

    def qrels(self, split: str) -> dict[str, dict[str, int]]:
        """Relevance judgements: query id -> corpus id -> score.

        Raises:
            InputError: no such split (naming the existing ones), or a bad line (naming file and line).
        """
        if split not in self.splits():
            existing = ", ".join(self.splits()) or "none"
            raise InputError(f"{self.directory / 'qrels'}: no split {split!r}; choose one of: {existing}")
        path = self.directory / "qrels" / f"{split}.tsv"
        judgements: dict[str, dict[str, int]] = {}
        for line, text in _lines(path):
            cells = text.rstrip("\r").split("\t")
            where = f"{path}:{line}"
            if line == 1:
                if cells != HEADER:
                    raise InputError(f"{where}: the first line must be the header {' TAB '.join(HEADER)}")
                continue
            if len(cells) != 3:
                raise InputError(f"{where}: {len(cells)} columns, expected 3 between tabs")
            query, document, score = cells
            if query not in self.queries.index:
                raise InputError(f"{where}: query {query!r} is not in queries.jsonl")
            if document not in self.corpus.index:
                raise InputError(f"{where}: document {document!r} is not in corpus.jsonl")
            try:
                judged = int(score)
            except ValueError as error:
                raise InputError(f"{where}: score {score!r} is not a whole number") from error
            if judgements.setdefault(query, {}).setdefault(document, judged) != judged:
                raise InputError(f"{where}: {query!r} and {document!r} have another score on an earlier line")
        if not judgements:
            raise InputError(f"{path}: no judgements")
        return judgements

    def pool(self, split: str) -> list[str]:
        """The corpus ids that a split is ranked among: those of pools/SPLIT.txt if that file exists, else all.

        Raises:
            InputError: an id is unknown or repeated, naming file and line.
        """
        path = self.directory / "pools" / f"{split}.txt"
        if not path.exists():
            return list(self.corpus.ids)
        pool: dict[str, None] = {}
        for line, name in _lines(path):
            if name not in self.corpus.index:
                raise InputError(f"{path}:{line}: document {name!r} is not in corpus.jsonl")
            if name in pool:
                raise InputError(f"{path}:{line}: document {name!r} is repeated")
            pool[name] = None
        return list(pool)


class JsonLines:
    """The (id, "title text") of each line of a BEIR jsonl; once iterated over, `sha256` is that of the whole file."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self.path = path
        self.sha256 = ""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the texts in file order.

        Raises:
            InputError: a bad line or a repeated id (naming file and line), or a file without texts.
        """
        digest = hashlib.sha256()
        seen: dict[str, int] = {}
        with os_errors_as_input_errors(self.path, "read"), open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                digest.update(line)
                if not line.strip():
                    continue
                where = f"{self.path}:{number}"
                name, text = _parse(line, where)
                if seen.setdefault(name, number) != number:
                    raise InputError(f"{where}: _id {name!r} is already on line {seen[name]}")
                yield name, text
        if not seen:
            raise InputError(f"{self.path}: contains no texts")
        self.sha256 = digest.hexdigest()


def _parse(line: bytes, where: str) -> tuple[str, str]:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: not a JSON object")
    for key in ("_id", "text"):
        if not isinstance(record.get(key), str):
            raise InputError(f"{where}: {key!r} is missing or not a string")
    if not record["_id"] or any(c in record["_id"] for c in "\t\r\n"):
        raise InputError(f"{where}: _id {record['_id']!r} is empty or contains a tab or line break")
    title = record.get("title") or ""
    if not isinstance(title, str):
        raise InputError(f"{where}: 'title' is not a string")
    return record["_id"], f"{title} {record['text']}".strip()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a small text file with their numbers, without blank lines."""
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error})") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _map(directory: Path, part: str, ids: list[str], tokenizer: Tokenizer, remedy: str) -> TokenTexts:
    """Memory-map the tokens of one part and check that they are what `tokenize` writes."""
    arrays = []
    for name in ("ids", "ends"):
        path = directory / "tokens" / f"{part}.{name}.npy"
        try:
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path}: cannot be read ({error}); {remedy}") from error
    flat, ends = arrays
    valid = (
        (flat.ndim, ends.ndim, flat.dtype, ends.dtype) == (1, 1, tokenizer.dtype, np.int64)
        and len(ends) == len(ids)
        and ends[0] >= 0
        and not np.any(ends[1:] < ends[:-1])
        and ends[-1] == len(flat)
        and (not len(flat) or flat.max() < tokenizer.vocab_size)
    )
    if not valid:
        raise InputError(f"{directory / 'tokens'}: {part}.*.npy is damaged; {remedy}")
    return TokenTexts(ids, flat, ends)


def tokenize(directory: Path, tokenizer: Tokenizer) -> None:
    """Write DIRECTORY/tokenizer.json and DIRECTORY/tokens/; old tokens are replaced only by complete ones.

    Raises:
        InputError: the texts are bad (naming file and line), or the files cannot be written.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder")
    content = read_bytes(tokenizer.path)
    state = {"fingerprint": tokenizer.fingerprint}
    with whole_folder(directory / "tokens") as tokens:
        for part in PARTS:
            reader = JsonLines(directory / f"{part}.jsonl")
            _write_tokens(track(reader, part, "texts"), tokenizer, tokens / part)
            state[part] = reader.sha256
        (tokens / "tokens.json").write_text(json.dumps(state, indent=1) + "\n")
        with whole_file(directory / "tokenizer.json") as file:
            file.write(content)


def _write_tokens(texts: Iterator[tuple[str, str]], tokenizer: Tokenizer, stem: Path) -> None:
    """Write STEM.ids.npy and STEM.ends.npy, with one batch of texts in memory."""
    lengths: list[int] = []
    with open(f"{stem}.ids.npy", "wb") as file:
        _write_header(file, tokenizer.dtype, 0)
        for _, (ids,) in tokenizer.encode_batches((name, [text]) for name, text in texts):
            file.write(ids.tobytes())
            lengths.append(len(ids))
        file.seek(0)
        _write_header(file, tokenizer.dtype, sum(lengths))
    np.save(f"{stem}.ends.npy", np.cumsum(lengths, dtype=np.int64))


def _write_header(file: BinaryIO, dtype: np.dtype, length: int) -> None:
    """Write the header of a flat .npy; numpy pads it, so its size is the same for any length."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
