"""Recognise a file by its first bytes, so that a command for another kind of file refuses it."""

import json
import re

BEGINNING = 1 << 12  # bytes that are examined

_XML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b")
_JSON = re.compile(rb"\s*\{\s*\"")


def not_text(content: bytes) -> str:
    """Return what a file or member is if its beginning is clearly not prose, with the command to use; else ""."""
    start = content[:BEGINNING].removeprefix(b"\xef\xbb\xbf")
    if _XML.match(start):
        return "a MediaWiki XML export, not text; use the command wikipedia"
    if start.startswith(b"PAR1"):
        return "a Parquet file, not text; use the command wikipedia, or convert it"
    if _JSON.match(start):
        return _lines(content)
    return ""


def _lines(content: bytes) -> str:
    first = content.split(b"\n", 1)[0]
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return ""
    if "link_id" in record or {"title", "created_utc"} <= set(record):
        return "JSON lines of Reddit, not text; use the command reddit"
    if {"title", "url", "text"} <= set(record):
        return "JSON lines of WikiExtractor, not text; use the command wikipedia"
    return "JSON lines, not text; use the command jsonl"
