"""Documents, queries and what is relevant to each, in Python: an opened collection, or one made of texts."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import TOKENIZER
from deepsiam.data_prep.collections.collection import Collection as OpenedCollection
from deepsiam.data_prep.collections.format import Where, check_id
from deepsiam.data_prep.collections.formats.beir import HEADER
from deepsiam.data_prep.collections.texts import checked_texts
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_folder
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

BYTES = 261  # the size of a byte-level vocabulary without a merge: 256 bytes, 5 special tokens

Relevant = Mapping[str, Mapping[str, int] | Iterable[str]]


class Collection:
    """Documents, queries and their relevant documents; `open` and `from_texts` make it.

    Attributes:
        directory: its folder, which commands and recipes take, too.
        is_of_texts: whether `from_texts` made it, so that its tokens can be made again.
    """

    def __init__(
        self, directory: Path, temporary: TemporaryDirectory[str] | None = None, *, is_of_texts: bool = False
    ) -> None:
        self.directory, self.is_of_texts = directory, is_of_texts
        self._temporary = temporary  # is removed with this object

    def __repr__(self) -> str:
        return f"<deepsiam.Collection {self.directory}>"

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Collection:
        """Open a collection that `data_prep collection` made.

        Raises:
            InputError: it is missing, unfinished or damaged.
        """
        return cls(OpenedCollection.open(Path(path)).directory)

    @classmethod
    def from_texts(
        cls,
        documents: Mapping[str, str],
        queries: Mapping[str, str],
        relevant: Relevant,
        *,
        split: str = "test",
        folder: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
    ) -> Collection:
        """Make a collection of texts.

        Args:
            documents: texts by their ids.
            queries: likewise.
            relevant: for the ids of judged queries, ids of relevant documents; or by these ids grades, whole numbers,
                of which those above 0 are relevant.
            split: a name for these judgements, such as train.
            folder: a new folder for the collection; by default a temporary one, which is removed with the object.
            tokenizer: a tokenizer.json, a folder that has one, or that of a `Model`: models are trained and evaluated
                on tokens of their own. `evaluate` makes the tokens again, if need be, as its first model reads texts.

        Raises:
            InputError: something is empty, a text is not a string, an id is unknown, or the folder has contents.
        """
        if not re.fullmatch(r"\w[\w.-]*", split):
            raise InputError(f"split: {split!r} is no name of a split: write letters, digits, '_', '-' and '.' alone")
        lines = {"corpus.jsonl": _lines("documents", documents), "queries.jsonl": _lines("queries", queries)}
        lines[f"qrels/{split}.tsv"] = ["\t".join(row) for row in (HEADER, *_judgements(relevant, queries, documents))]
        temporary = None if folder else TemporaryDirectory(prefix="deepsiam-")
        directory = Path(folder) if folder else Path(temporary.name, "collection")  # type: ignore[union-attr]
        if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            raise InputError(f"{directory}: exists: name a new folder")
        with whole_folder(directory) as written:
            for name, rows in lines.items():
                (written / name).parent.mkdir(exist_ok=True)
                (written / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
            if tokenizer is None:  # BM25 reads words, so that any will do
                tokenizer = tokenizers.train(["a"], BYTES, written / TOKENIZER, "bpe")
            reader = tokenizer if isinstance(tokenizer, Tokenizer) else tokenizers.load(Path(tokenizer))
            build("beir", [written], written, reader)
        return cls(directory, temporary, is_of_texts=True)

    def splits(self) -> list[str]:
        """Return the names of its sets of judgements."""
        return self.read_by(None).splits()

    def read_by(self, tokenizer: Tokenizer | None) -> OpenedCollection:
        """Open the arrays; of `from_texts`, make the tokens again where another tokenizer than this one made them."""
        opened = OpenedCollection.open(self.directory)
        if self.is_of_texts and tokenizer and tokenizer.fingerprint != opened.tokenizer.fingerprint:
            return build("beir", [self.directory], self.directory, tokenizer)
        return opened


def _lines(name: str, texts: Mapping[str, str]) -> list[str]:
    """Return texts as lines of BEIR's JSON; raise InputError for what is no text or no id."""
    _require_dict(name, texts, "texts by their ids")
    contents = checked_texts(texts, name)
    ids = [check_id(key, "id", Where(Path(name), number)) for number, key in enumerate(texts, 1)]
    return [json.dumps({"_id": key, "text": text}) for key, text in zip(ids, contents, strict=True)]


def _require_dict(name: str, given: object, contents: str) -> None:
    """Raise InputError for what is no dict, or an empty one."""
    if not (isinstance(given, Mapping) and given):
        raise InputError(f"{name}: give a dict of {contents}, which is not empty")


def _judgements(
    relevant: Relevant, queries: Mapping[str, str], documents: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a file of judgements; raise InputError for an unknown id or what is no grade."""
    _require_dict("relevant", relevant, "the ids of relevant documents by the ids of queries")
    for query, judged in relevant.items():
        where = f"relevant[{query!r}]"
        if query not in queries:
            raise InputError(f"{where}: is not among the queries")
        if isinstance(judged, str) or not isinstance(judged, Iterable):
            raise InputError(f"{where}: {judged!r} is no list of ids: write [{judged!r}]")
        grades = judged if isinstance(judged, Mapping) else dict.fromkeys(judged, 1)
        for document, grade in grades.items():
            if document not in documents:
                raise InputError(f"{where}: {document!r} is not among the documents")
            try:
                yield str(query), str(document), str(operator.index(grade))
            except TypeError:
                raise InputError(f"{where}[{document!r}]: {grade!r} is not a whole number, as grades are") from None
