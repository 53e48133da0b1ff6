"""Recognise a file by its first bytes, so that a command for another kind of file refuses it."""

import codecs
import json
import re

BEGINNING = 1 << 12  # bytes that are examined

_JSON = re.compile(rb"\s*\{\s*\"")
_SAVE = "save it as plain text, as {} does"
_OFFICE, _CONVERTER = _SAVE.format("LibreOffice"), _SAVE.format("LibreOffice or pandoc")
_ZIP = rb"PK\x03\x04"
_TAGS = rb"\s*(?:<\?xml[^>]*>\s*|<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta)\b"
_PRINTED = rb"(?:\x04|\x1b%-12345X[^\n]*\n(?:@PJL[^\n]*\n)*)?%!(?:PS|\r|\n)|\xc5\xd0\xd3\xc6"
_PACKED = rb"\x1f\x8b\x08|BZh[1-9](?:1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|\x1f\x9d"
_BOOK = rb".{26,60}(?:mimetypeapplication/epub|META-INF/container)"
_WORD = rb".{26}(?:\[Content_Types\]\.xml|_rels/|docProps/|word/)"
_KINDS = [  # how a file of another kind begins, what it is, and what to do
    (re.compile(begins, re.I | re.S), f"{kind}, not text; {remedy}")
    for begins, kind, remedy in (
        (rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b", "a MediaWiki XML export", "use the command wikipedia"),
        (rb"PAR1", "a Parquet file", "use the command wikipedia, or convert it"),
        (rb"\{\\rtf", "RTF", _CONVERTER),
        (_TAGS, "HTML", _SAVE.format("`w3m -dump` or pandoc")),
        (rb"\s*<\?xml\s", "XML", _SAVE.format("pandoc")),
        (rb"\s*%PDF-\d", "PDF", "convert it, as pdftotext does"),
        (_PRINTED, "PostScript", "convert it, as ps2ascii does"),
        (_ZIP + _BOOK, "an e-book (EPUB)", "convert it, as pandoc does"),
        (_ZIP + rb".{26,40}mimetypeapplication/vnd\.oasis", "an OpenDocument file", _OFFICE),
        (_ZIP + _WORD, "an Office document (.docx)", _CONVERTER),
        (rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", "a ZIP archive", "unpack it"),
        (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document (.doc)", _OFFICE),
        (rb".{60}(?:BOOKMOBI|TEXtREAd)", "an e-book (Mobipocket)", "convert it, as Calibre does"),
        (rb"AT&TFORM", "DjVu", "convert it, as djvutxt does"),
        (rb"\xf7\x02", "DVI", "convert it, as dvi2tty does"),
        (_PACKED, "compressed", "decompress it"),
        (rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07", "an archive", "unpack it"),
        (rb".{257}ustar", "a tar", "give it the ending .tar"),
        (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*", "an image", "convert it, as tesseract does"),
        (rb"SQLite format 3\0|ARROW1|\x93NUMPY|\x89HDF|Obj\x01|\x7fELF", "a binary file", "convert it to text"),
    )
]


def not_text(content: bytes) -> str:
    """Return what a file or member is if its beginning is clearly not prose, with what to do; else ""."""
    start = content[:BEGINNING].removeprefix(codecs.BOM_UTF8)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        start = start[2:].replace(b"\0", b"")
    if _JSON.match(start):
        return _lines(content)
    return next((kind for begins, kind in _KINDS if begins.match(start)), "")


def _lines(content: bytes) -> str:
    line = content.split(b"\n", 1)[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if "link_id" in record or {"title", "created_utc"} <= set(record):
        return "JSON lines of Reddit, not text; use the command reddit"
    if {"title", "url", "text"} <= set(record):
        return "JSON lines of WikiExtractor, not text; use the command wikipedia"
    return "JSON lines, not text; use the command jsonl"
