"""Read MediaWiki XML exports page by page: of any size, even damaged or hostile."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from deepsiam.data_prep.common.errors import CutOffError, InputError
from deepsiam.data_prep.sources.document import Bad

LARGEST_PAGE = 1 << 24  # characters of a page; MediaWiki saves at most 2 MiB of text
CHUNK = 1 << 18  # bytes read at a time
LARGEST_TAG = 1 << 24  # bytes; expat keeps a whole tag in memory
MOST_NAMES = 1000  # of elements and attributes, which expat keeps in memory; an export has about 60
DEEPEST = 64  # levels of nested elements; an export has 5
HIDING = frozenset({"6", "14"})  # file, category: their links are not shown unless they begin with a colon
MEDIA = "-2"  # links to the files themselves
_LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"

_PAGE = ("mediawiki", "page")
_REVISION = (*_PAGE, "revision")
_TEXT = (*_REVISION, "text")
_REDIRECT = (*_PAGE, "redirect")
_NAMESPACE = ("mediawiki", "siteinfo", "namespaces", "namespace")
_FIELDS = {
    (*_PAGE, "title"): "title",
    (*_PAGE, "ns"): "namespace",
    (*_PAGE, "id"): "id",
    (*_REVISION, "model"): "model",
    _TEXT: "text",
    _NAMESPACE: "name",
}
_ID = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Page:
    """A page of a wiki with the last of its revisions in the export; its model is "wikitext", another one, or ""."""

    id: str
    namespace: int
    title: str
    redirect: bool
    model: str
    suppressed: bool
    text: str


class Export:
    """An export, read once; from the first page on it knows the wiki's language, and its names for HIDING and MEDIA."""

    def __init__(self, stream: "io.BufferedReader[Any]", name: str) -> None:
        self.hiding: set[str] = set()  # in lower case
        self.media: set[str] = set()
        self.language = ""
        self._namespaces: dict[str, str] = {}  # the key of each of the wiki's own names, in lower case
        self._key = ""
        self._stream = stream
        self._name = name
        self._finished: list[Page | Bad] = []  # pages of the chunk that is being parsed
        self._begun = 0  # pages begun
        self._valid = 0
        self._path: tuple[str, ...] = ()
        self._start_page(0)
        # All exports are UTF-8: an encoding that a file declares is ignored.
        self._parser = parser = expat.ParserCreate("utf-8", namespace_separator=" ")
        parser.buffer_text = True
        parser.buffer_size = CHUNK
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype

    def pages(self) -> Iterator[Page | Bad]:
        """Yield the pages in order; Bad for a page without a field or with more than LARGEST_PAGE characters.

        A chunk and a page are in memory. Nothing in the file is expanded or looked up.

        Raises:
            InputError: the XML is cut off (CutOffError), damaged or not an export; the pages before that have been
                yielded.
        """
        position = 0
        ended = False
        while not ended:
            chunk = self._stream.read1(CHUNK)  # not `read`, which loses what came before an exception
            ended = not chunk
            position += len(chunk)
            failure = None
            try:
                self._parser.Parse(chunk, ended)
                self._check_bounds(position)
            except InputError as error:
                failure = error
            except expat.ExpatError as error:
                fault = f"cut off at byte {position:,}" if ended else f"damaged at byte {self._parser.ErrorByteIndex:,}"
                fault = f"{fault} ({expat.errors.messages[error.code]})" if position else "empty"
                failure = self._failure(fault, CutOffError if ended and position else InputError)
            pages, self._finished = self._finished, []
            yield from pages
            if failure:
                raise failure

    def _failure(self, fault: str, kind: type[InputError] = InputError) -> InputError:
        return kind(f"{self._name}: {fault}, after {self._valid:,} valid pages; get the file again")

    def _check_bounds(self, position: int) -> None:
        at = self._parser.CurrentByteIndex
        if position - at > LARGEST_TAG:
            raise self._failure(f"a tag of more than {LARGEST_TAG:,} bytes at byte {at:,}")
        if len(self._parser.intern) > MOST_NAMES:
            raise self._failure(f"more than {MOST_NAMES:,} different tags before byte {at:,}")

    def _doctype(self, *_: object) -> None:
        raise self._failure("not a MediaWiki export (it has a document type declaration)")

    def _start_page(self, byte: int) -> None:
        self._byte = byte
        self._size = 0  # characters of its fields
        self._fields: dict[str, list[str]] = {}
        self._field: list[str] | None = None  # the field that the parser is in
        self._redirect = False
        self._suppressed = False

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path = path = (*self._path, name.rpartition(" ")[2])  # the namespace URI differs between versions
        if path[0] != "mediawiki" or len(path) > DEEPEST:
            raise self._failure(f"not a MediaWiki export (<{'><'.join(path[:5])[:100]}>)")
        if len(path) == 1:
            self.language = attributes.get(_LANGUAGE, "")
        elif path == _PAGE:
            self._begun += 1
            self._start_page(self._parser.CurrentByteIndex)
        elif path == _REVISION:  # an export of the whole history has several: the last is used
            self._size -= sum(len(part) for name in ("model", "text") for part in self._fields.pop(name, ()))
        elif path == _REDIRECT:
            self._redirect = True
        elif path == _TEXT:
            self._suppressed = "deleted" in attributes
        elif path == _NAMESPACE:
            self._key = attributes.get("key", "")
        field = _FIELDS.get(path)
        self._field = self._fields.setdefault(field, []) if field else None

    def _characters(self, data: str) -> None:
        if self._field is None:
            return
        self._size += len(data)
        if self._size <= LARGEST_PAGE:
            self._field.append(data)
        else:
            self._fields.clear()
            self._field = None

    def _end(self, _: str) -> None:
        if self._path == _PAGE:
            self._finished.append(self._page())
        elif self._path == _NAMESPACE:
            name = "".join(self._fields.pop("name", ())).lower()
            if len(self._namespaces) < MOST_NAMES:
                self._namespaces[name] = self._key
            if self._key in HIDING:
                self.hiding.add(name)
            elif self._key == MEDIA:
                self.media.add(name)
        self._path = self._path[:-1]
        self._field = None

    def _page(self) -> Page | Bad:
        fields = {name: "".join(parts) for name, parts in self._fields.items()}
        number, namespace = fields.get("id", "").strip(), fields.get("namespace", "").strip()
        if "namespace" not in self._fields and self._namespaces:  # exports before 2012: only its title has it
            prefix = fields.get("title", "").partition(":")[0].strip().replace("_", " ").lower()
            namespace = self._namespaces.get(prefix, "0")
        if self._size > LARGEST_PAGE:
            reason = f"a page of more than {LARGEST_PAGE:,} characters"
        elif not _ID.fullmatch(number):
            reason = "a page without an id"
        elif not _NUMBER.fullmatch(namespace):
            reason = "a page without a namespace"
        else:
            self._valid += 1
            return Page(
                number,
                int(namespace),
                fields.get("title", "").strip(),
                self._redirect,
                fields.get("model", "").strip(),
                self._suppressed,
                fields.get("text", ""),
            )
        return Bad(self._name, f"page {self._begun:,} at byte {self._byte:,}", reason)
