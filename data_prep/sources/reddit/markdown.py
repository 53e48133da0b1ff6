"""Reddit's Markdown as plain paragraphs, one line each: the author's own words, without markup, quotations and code.

Labels of links and code inside a sentence stay; bare addresses, fenced and indented code, tables and quotations are
removed. Entities are replaced twice: dumps escape the text as typed, which may contain entities itself. Time and memory
are linear in the text.
"""

import re
from collections.abc import Iterator

from deepsiam.data_prep.text.normalize import legible, legible_line, unescape

_FENCE = re.compile(r"(?:```|~~~)[^`]*")  # ```on one line``` is code inside a sentence
_QUOTATION = re.compile(r">(?!!)")  # >!text!< is a spoiler
_RULE = re.compile(r"(?:[-*_=] *){3,}")
_TABLE_RULE = re.compile(r"(?=.*-)(?=.*\|)[-|: ]+")
_DEFINITION = re.compile(r"\[[^\[\]]+\]: *\S+")  # [1]: https://..., which [label][1] names
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"#{1,6}(?!\w)\s*")  # `#tag` is not a heading

_TARGET = r"\(\s{0,9}[^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s{1,9}[\"'][^()]{0,300})?\s{0,9}\)"
_IMAGE = r"!\[[^\[\]]*\]" + _TARGET
_LABELLED = r"\[([^\[\]]*)\](?:" + _TARGET + r"|\[\w*\])"
_ADDRESS = r"<?\b(?:(?:https?|ftp)://|www\.)(?:[^\s<>()\[\]]|\([^\s<>()]*\))+>?"
_ANY_LINK = re.compile(f"{_IMAGE}|{_LABELLED}|{_ADDRESS}|{_DEFINITION.pattern}")

_MAYBE_MARKUP = re.compile(r"[&`*_\\\[~^]|>!|://|www\.")
_MARKUP = [
    (re.compile(_IMAGE), ""),
    (re.compile(_LABELLED), r"\1"),
    (re.compile(_ADDRESS), ""),
    (re.compile(r"`+([^`]*)`+"), r"\1"),
    (re.compile(r">!([^!]*)!<"), r"\1"),
    (re.compile(r"~~([^~]+)~~"), r"\1"),
    (re.compile(r"(?<![\w*\\])(\*{1,3})(?=[^\s*])([^*]+)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"(?<![\w\\])(_{1,3})(?=[^\s_])([^_]+)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"(?<!\\)\^\(([^()]*)\)"), r"\1"),  # ^(superscript): small print more often than a power
    (re.compile(r"(?<![\w)\\^])\^+(?=\w)"), ""),
    (re.compile(r"\\([^\w\s])"), r"\1"),
]
_TIDY = [(re.compile(r"\(\s*\)"), ""), (re.compile(r" (?=[.,;!?](?:\s|$))"), "")]


def paragraphs(markdown: str) -> list[str]:
    """Return the paragraphs, list items and headings of a text; none is empty, and line breaks are blanks."""
    texts = map(_plain, _blocks(legible(unescape(markdown)).split("\n")))
    return [text for text in texts if text]


def is_links_only(markdown: str) -> bool:
    """Return whether a text has links, but no letter outside them and their labels."""
    remainder, links = _ANY_LINK.subn("", unescape(markdown))
    return links > 0 and not any(map(str.isalpha, remainder))


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yield each paragraph or item as joined lines, without code, tables and quotations; a heading joins the next."""
    block: list[str] = []
    fenced = quotation = table = item = False  # state at the previous line
    for line in lines:
        text = line.strip()
        if fenced or _FENCE.fullmatch(text):
            fenced ^= bool(_FENCE.fullmatch(text))
            text = ""
        elif text:
            quotation = quotation or bool(_QUOTATION.match(text))  # a line without `>` continues it
            if _TABLE_RULE.fullmatch(text):
                table, block = True, block[:-1]  # the line before it is the head of the table
            table = table and "|" in text
            code = not block and not item and line.startswith("    ")
            if quotation or table or code or _RULE.fullmatch(text) or _DEFINITION.fullmatch(text):
                text = ""
        else:
            quotation = table = False
        opening = _ITEM.match(text) or _HEADING.match(text)
        if block and (opening or not text):
            yield " ".join(block)
            block = []
        if text:
            block.append(text[opening.end() :] if opening else text)
            item = bool(_ITEM.match(text)) or (item and line.startswith(" "))
    if block:
        yield " ".join(block)


def _plain(text: str) -> str:
    if _MAYBE_MARKUP.search(text):
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
        text = legible_line(unescape(text))
        for pattern, replacement in _TIDY:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())
