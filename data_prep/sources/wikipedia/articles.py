"""Wikipedia as published: XML dumps, WikiExtractor's output, and the Parquet files of `wikimedia/wikipedia`."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.compressed import open_input
from deepsiam.data_prep.sources.document import Bad, BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.pairing import titled
from deepsiam.data_prep.sources.parquet import parquet_columns, parquet_rows
from deepsiam.data_prep.sources.plain_text import NO_TEXT, Line, line_pieces
from deepsiam.data_prep.sources.source import PAIRS, Choices, File, Option, Piece, Source, finder
from deepsiam.data_prep.sources.wikipedia.wikitext import HIDING, MEDIA, Wiki, plain
from deepsiam.data_prep.sources.wikipedia.xml_export import LARGEST_PAGE, Export, Page
from deepsiam.data_prep.text.normalize import legible, legible_line, unescape

LARGEST_LINE = LARGEST_PAGE  # bytes of a line of JSON
PARQUET = "the Parquet of wikimedia/wikipedia"
BEGINNING = 1 << 12  # bytes of a file that determine its format

# a whole dump, or a part of a large one: pages-articles1.xml-p1p41242.bz2
_NAME = re.compile(r"wiki_\d+|.*\.parquet|.*pages-articles.*\.xml(-p\d+p\d+)?", re.DOTALL)
_NO_FILES = "no wiki_NN, .parquet or pages-articles .xml file in this folder; name a folder with such files, or files"
_REDIRECT = re.compile(r"\s*#\s*redirect\b", re.IGNORECASE)
# The templates of the English Wikipedia, without those that occur in articles: hatnotes, {{disambiguation needed}}.
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:template:\s*)?(?:[^{}|<>\n]{0,60}[ _])?"
    r"(?:disambiguation|disambig|disamb|dab|hndis|geodis|numberdis|roaddis|schooldis|letterdis|mathdab)"
    r"(?:[ _-]?cleanup)?\s*[|}]|__DISAMBIG__",
    re.IGNORECASE,
)
_ID = re.compile(r"[0-9]{1,18}")
_ANY_WORD = re.compile(r"\w")


class Article(NamedTuple):
    """A page of an XML export, not parsed."""

    page: Page
    wiki: Wiki


class _Row(NamedTuple):
    id: Any
    text: Any
    title: Any


def _pieces(file: File, _: Choices) -> Iterator[Piece]:
    """Read a file in the format that its first bytes determine."""
    with open_input(file.path) as stream:
        start = stream.read(BEGINNING).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"PAR1"):
        return _rows(file.path)
    if start.startswith(b"{"):
        return line_pieces(file.path, LARGEST_LINE)
    if start.startswith(b"<") and not start.startswith(b"<doc "):  # WikiExtractor writes <doc without --json
        return _pages(file.path)
    raise InputError(
        f"{file.path}: neither a MediaWiki XML export nor WikiExtractor's JSON lines (--json) nor Parquet; "
        "get one of these, or leave it out"
    )


def _pages(path: Path) -> Iterator[Piece]:
    with open_input(path) as stream:
        export = Export(stream, str(path))
        wiki: Wiki | None = None  # the same object for all pages, so that a batch pickles it once
        for page in export.pages():
            wiki = wiki or Wiki(HIDING | export.hiding, MEDIA | export.media, export.language)
            if isinstance(page, Bad):
                yield Piece(page.where, 0, page)
            else:
                yield Piece(f"page {page.id}", len(page.text), Article(page, wiki))


def _rows(path: Path) -> Iterator[Piece]:
    columns = ["id", "text", *({"title"} & set(parquet_columns(path, PARQUET)))]
    for row, (number, text, *title) in parquet_rows(path, columns, PARQUET):
        yield Piece(f"row {row:,}", len(text) if isinstance(text, str) else 0, _Row(number, text, *title or ("",)))


def _read(_: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    match piece.content:
        case Article():
            yield article(piece.content, choices)
        case Line(_, line):
            yield _extracted(line)
        case _Row():
            yield _plain(*piece.content)


def article(markup: Article, choices: Choices) -> Document | Dropped:
    """Return the document of an article; Dropped if the page is none, or has no text."""
    page, wiki = markup
    if reason := left_out(page, choices["keep_disambiguation"]):
        return Dropped(reason)
    segments, headings, unknown = plain(page.text, wiki, choices["keep_references"], choices["infoboxes"])
    if not segments:
        return Dropped(NO_TEXT.reason, tuple(unknown))
    name, title = f"wikipedia/{page.id}", legible_line(page.title)
    return Document(name, tuple(segments), tuple(headings), title=title, unknown=tuple(unknown))


def left_out(page: Page, keep_disambiguation: bool) -> str:
    """Return the reason why a page is not an article; "" if it is one."""
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


def _extracted(line: bytes | None) -> Document | Dropped:
    if line is None:
        raise BadRecordError(f"a line of more than {LARGEST_LINE:,} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRecordError("not JSON") from None
    if not isinstance(value, dict):
        raise BadRecordError("not a JSON object")
    text, title = (
        unescape(part) if isinstance(part, str) else None for part in (value.get("text"), value.get("title"))
    )
    return _plain(value.get("id"), text, title)


def _plain(number: Any, text: Any, title: Any) -> Document | Dropped:
    """Return the document of a text without markup, a paragraph per line; raise BadRecordError for a missing part."""
    if not isinstance(number, str | int) or not _ID.fullmatch(str(number)):
        raise BadRecordError("`id` is not the number of a page")
    if not isinstance(text, str):
        raise BadRecordError("no `text`")
    lines = (" ".join(line.split()) for line in legible(text).split("\n"))
    paragraphs = tuple(line for line in lines if _ANY_WORD.search(line))
    title = legible_line(title) if isinstance(title, str) else ""
    return Document(f"wikipedia/{number}", paragraphs, title=title) if paragraphs else NO_TEXT


# One document per article, `wikipedia/ID`.
#
# XML exports. Dropped: pages of other namespaces, redirects, disambiguation pages (unless kept by option), pages whose
# content is not wiki markup, suppressed pages, and pages without text once the markup is removed. Bad: a page with
# more than xml_export.LARGEST_PAGE characters, or without an id or namespace. Reading a page takes at most about 60
# bytes per character; its templates are expanded from our tables, without other pages.
#
# JSON lines and Parquet. Dropped: records without text, which WikiExtractor writes for redirects. Bad: a record of
# another form, with an id that is not a number or without text, or a line of more than LARGEST_LINE bytes. These files
# do not distinguish headings from short paragraphs.
WIKIPEDIA = Source(
    summary="Wikipedia: XML dumps, WikiExtractor's JSON, Parquet files",
    find=finder("wikipedia", _NAME, _NO_FILES),
    pieces=_pieces,
    read=_read,
    pairing=titled,
    later=0.4,
    example="enwiki-latest-pages-articles-multistream.xml.bz2 --out data/wikipedia --held-out 0.001",
    options=(
        Option("keep_disambiguation", False, "keep the pages that list the meanings of a title"),
        Option("keep_references", False, "keep the sections See also, References, External links and the like"),
        Option("infoboxes", False, "keep the rows of infoboxes, as list items"),
        PAIRS,
    ),
)
