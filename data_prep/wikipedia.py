"""Wikipedia as it comes: XML dumps, what WikiExtractor writes, and the Parquet files of `wikimedia/wikipedia`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.clean import normalise, unescape
from data_prep.document import Document
from data_prep.errors import InputError
from data_prep.mediawiki import LARGEST_PAGE, Export, Page
from data_prep.record import Bad, Dropped
from data_prep.wikitext import HIDING, segments

LARGEST_LINE = LARGEST_PAGE  # bytes of a line of JSON
LARGEST_ROW_GROUP = 1 << 30  # bytes, decompressed; those of wikimedia/wikipedia have some 10 MB

_REDIRECT = re.compile(r"\s*#\s*redirect\b", re.IGNORECASE)
# The templates of the English Wikipedia; hatnotes and {{disambiguation needed}} stand in articles.
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:template:\s*)?(?:[^{}|<>\n]{0,60}[ _])?"
    r"(?:disambiguation|disambig|disamb|dab|hndis|geodis|numberdis|roaddis|schooldis|letterdis|mathdab)"
    r"(?:[ _-]?cleanup)?\s*[|}]|__DISAMBIG__",
    re.IGNORECASE,
)
_ID = re.compile(r"[0-9]{1,18}")
_ANY_WORD = re.compile(r"\w")


def read_dump(stream: BinaryIO, name: str, keep_disambiguation: bool = False) -> Iterator[Document | Bad | Dropped]:
    """Yields the articles of a MediaWiki XML export, already decompressed, one page after the other.

    Dropped are pages of other namespaces, redirects, disambiguation pages unless they are to be kept, pages whose
    content is not wiki markup, suppressed ones, and those that have no text once the markup is gone. A page with
    more than mediawiki.LARGEST_PAGE characters, or without an id or namespace, is Bad. One page is held at a time,
    at most some 60 bytes a character of it; nothing in the file is expanded or looked up.

    Raises:
        InputError: the XML is cut off or damaged, or is no MediaWiki export; the pages before have been yielded.
    """
    export = Export(stream, name)
    for page in export.pages():
        if isinstance(page, Bad):
            yield page
        elif reason := _left_out(page, keep_disambiguation):
            yield Dropped(reason)
        else:
            texts, headings = segments(page.text, HIDING | export.hiding)
            yield Document(f"wikipedia/{page.id}", tuple(texts), tuple(headings)) if texts else Dropped("empty")


def _left_out(page: Page, keep_disambiguation: bool) -> str:
    """The reason why a page is no article; "" where it is one."""
    if page.namespace != 0:
        return "other namespace"
    if page.redirect or _REDIRECT.match(page.text):
        return "redirect"
    if page.model not in ("", "wikitext"):
        return "not wiki markup"
    if page.suppressed:
        return "suppressed"
    if not keep_disambiguation and (page.title.endswith("(disambiguation)") or _DISAMBIGUATION.search(page.text)):
        return "disambiguation"
    return ""


def read_extracted(stream: BinaryIO, name: str) -> Iterator[Document | Bad | Dropped]:
    """Yields the documents that WikiExtractor wrote with --json, a line each.

    Dropped are those without text, as it makes of redirects. Bad is a line that is not such an object, or has more
    than LARGEST_LINE bytes, which is the most that is held of the file. Headings cannot be told from short
    paragraphs any more.
    """
    number = 0
    while line := stream.readline(LARGEST_LINE + 1):
        number += 1
        whole = len(line) <= LARGEST_LINE
        while not line.endswith(b"\n") and (rest := stream.readline(LARGEST_LINE)):
            line = rest
        if not whole:
            yield Bad(name, f"line {number:,}", f"a line of more than {LARGEST_LINE:,} bytes")
        elif line.strip():
            yield _extracted(line, name, f"line {number:,}")


def _extracted(line: bytes, name: str, where: str) -> Document | Bad | Dropped:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return Bad(name, where, "not JSON")
    if not isinstance(value, dict):
        return Bad(name, where, "not a JSON object")
    text = value.get("text")
    if isinstance(text, str):
        text = unescape(text)
    return _plain(value.get("id"), text, name, where)


def read_parquet(path: Path) -> Iterator[Document | Bad | Dropped]:
    """Yields the documents of a Parquet file of `wikimedia/wikipedia`, a row each; one row group is held at a time.

    Dropped are those without text; Bad is a row whose id is no number or whose text is missing. Headings cannot be
    told from short paragraphs.

    Raises:
        InputError: pyarrow is not installed, or the file is not Parquet, is damaged, lacks the columns `id` and
            `text`, or has a row group of more than LARGEST_ROW_GROUP bytes; the rows before have been yielded.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(f"{path}: reading Parquet needs pyarrow; pip install 'deepsiam[dumps]'") from None
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).total_byte_size
                if size > LARGEST_ROW_GROUP:
                    raise InputError(f"{path}: row group {group} has {size:,} bytes, more than {LARGEST_ROW_GROUP:,}")
                table = file.read_row_group(group, columns=["id", "text"])
                for number, text in zip(table["id"], table["text"], strict=True):
                    row += 1
                    yield _plain(number.as_py(), text.as_py(), str(path), f"row {row:,}")
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: not the Parquet of wikimedia/wikipedia after row {row:,}: {what}") from None


def _plain(number: Any, text: Any, name: str, where: str) -> Document | Bad | Dropped:
    """The document of a text without markup, whose paragraphs are lines."""
    if not isinstance(number, str | int) or not _ID.fullmatch(str(number)):
        return Bad(name, where, "`id` is not the number of a page")
    if not isinstance(text, str):
        return Bad(name, where, "no `text`")
    lines = (" ".join(line.split()) for line in normalise(text).split("\n"))
    paragraphs = tuple(line for line in lines if _ANY_WORD.search(line))
    return Document(f"wikipedia/{number}", paragraphs) if paragraphs else Dropped("empty")
