"""Wiki markup to plain text: paragraphs, list items and headings, without tables, files and references.

Templates show what they are known to show; a sentence with another one in it is dropped (`marks.py`).

The text is scanned a fixed number of times, without backtracking, so time and memory (at most about 60 bytes per
character) are linear in its length, even if its nesting is deep or broken. Text after a bracket that is never closed is
kept.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from deepsiam.data_prep.sources.wikipedia.formulas import formula_text
from deepsiam.data_prep.sources.wikipedia.marks import (
    BOLD,
    BOLD_ITALIC,
    ITALIC,
    WALL,
    hole,
    marked,
    paired,
    placed,
    unquoted,
    whole_sentences,
    without_marks,
)
from deepsiam.data_prep.sources.wikipedia.templates import infobox_lines, is_infobox, template_text, unknown_name
from deepsiam.data_prep.sources.wikipedia.variants import VARIANTS, variant_text
from deepsiam.data_prep.text.language import word_set
from deepsiam.data_prep.text.normalize import legible_line, unescape

HIDING = word_set("category file image")  # namespaces whose links show nothing, on every wiki
MEDIA = word_set("media")  # those whose links show their label
APPARATUS = word_set(  # the headings of sections without prose
    """bibliography citations external_links footnotes further_reading general_references literature_cited notes
    notes_and_references references references_and_notes see_also sources works_cited"""
)
LONGEST_NAME = 60  # characters of the name of an unknown template
DEEPEST = 40  # deeper nesting is dropped, as in MediaWiki: each level copies the text once more

# Tags whose content is not text, and <nowiki>, in which markup is literal.
_HELD = re.compile(
    r"<!--|<(ce|chem|charinsert|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|mapframe|maplink|math|"
    r"nowiki|pre|ref|references|score|script|source|style|syntaxhighlight|templatedata|timeline)(?![\w-])([^<>]*)>",
    re.IGNORECASE,
)
_LITERAL = {ord(c): f"&#{ord(c)};" for c in "[]{}|'<>=*_\n"}
_WITHIN = {ord(c): f"&#{ord(c)};" for c in "|="}  # of a template's text within another one: it separates no arguments
_SHOWN_TAGS: dict[str, Callable[[str], str | None]] = {
    "nowiki": str,
    **dict.fromkeys(("math", "ce", "chem"), formula_text),
    **dict.fromkeys(("hiero", "score"), lambda _: None),
}

_BRACKET = re.compile(
    r"\{\{|\}\}|\[\[|\]\](?!\](?!\]))|\n[ \t:*#]*\{\||\n[ \t]*\|\}(?!\}(?!\}))|<table\b[^<>]*>|</table\s*>",
    re.IGNORECASE,
)
_VARIANT_BRACKET = re.compile(rf"{_BRACKET.pattern}|-\{{(?!\{{)|\}}-", re.IGNORECASE)
_OPENING = {"{{": "template", "[[": "link", "{|": "table", "<t": "table", "-{": "variant"}
_CLOSING = {"}}": "template", "]]": "link", "|}": "table", "</": "table", "}-": "variant"}
_KEPT_IF_OPEN = {"{|": "|", "-{": "-{"}  # of a bracket that is never closed; a bar marks the line as a table's
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?|simple")
_FILE = re.compile(r"\.(?:gif|jpe?g|mid|mp[34]|og[agv]|pdf|png|svg|tiff?|web[mp])", re.IGNORECASE)

_QUOTE = ITALIC + BOLD + BOLD_ITALIC
_EXTERNAL = re.compile(
    r"\[(?:https?:|ftps?:|mailto:|news:|irc:|//)"
    rf"[^\s\]\[<>\"{_QUOTE}]*(?:(?:[^\S\n]|(?=[{_QUOTE}]))([^\]\[\n]*))?\]",
    re.IGNORECASE,
)
_SWITCH = re.compile(r"__[^\W\d_]{3,}__")  # __NOTOC__
# 10<sup>6</sup> is not 106, nor 2<sup>''n''</sup> 2n; but 2<sup>e</sup> is an ordinal
_POWER = re.compile(
    rf"(?:(?<=[\w)'{_QUOTE}])|(?<=</sub>))<sup\b[^<>]*>(?=[-+−–]?(?:\d|['{_QUOTE}]?[i-npqw-z]['{_QUOTE}]?</sup>))",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"</?(?:blockquote|center|dd|div|dl|dt|h[1-6]|hr|li|ol|p|poem|t[dhr]|ul)\b[^<>]*>", re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][a-z0-9]*(?:[\s/][^<>]*)?>", re.IGNORECASE)

_GAP = re.compile(r" [,;:)]|\([ ,;)]|[,;] [,;]")
_AROUND_GAPS = re.compile(r"[ ,;:()]{2,}")
_BEFORE_STOP = re.compile(r" (?=\.(?: |$))")
_ANY_WORD = re.compile(r"\w")


class Wiki(NamedTuple):
    """What markup means on a wiki; names of namespaces are in lower case."""

    hiding: frozenset[str] = HIDING  # the namespaces whose links are not shown unless they begin with a colon
    media: frozenset[str] = MEDIA
    language: str = ""


class Plain(NamedTuple):
    """The text of a page."""

    segments: list[str]  # its paragraphs, list items and headings, one line each
    headings: list[int]  # the numbers of the headings; those of sections without text are dropped
    unknown: list[str]  # for each sentence that was dropped, the template in it whose text is unknown


def plain(
    markup: str,
    wiki: Wiki = Wiki(),  # noqa: B008 (it cannot be changed)
    apparatus: bool = False,
    infoboxes: bool = False,
) -> Plain:
    """Return the text of a page, or also its `apparatus`, sections of references and links, and rows of `infoboxes`."""
    holes = list[str]()
    text = marked(_without_held(without_marks(markup), holes))
    text = placed(paired(_without_brackets("\n" + text, wiki, infoboxes, holes)))
    text = _EXTERNAL.sub(lambda match: match[1] or "", text)
    text = _SWITCH.sub("", text)
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub(" ", _BLOCK.sub("\n\n", _POWER.sub("^", text))))
    page = _Page(frozenset() if apparatus else APPARATUS)
    for line in text.split("\n"):
        page.add(line.strip())
    page.end_paragraph()
    return Plain(page.segments, page.headings, [holes[number] for number in page.dropped])


def _mark(holes: list[str], name: str) -> str:
    """Return the mark of a new hole, whose number is its place in `holes`, the names of what is unknown on a page."""
    holes.append(legible_line(without_marks(name))[:LONGEST_NAME])
    return hole(len(holes) - 1)


def _without_held(text: str, holes: list[str]) -> str:
    """Remove comments, and tags whose content is not text, with their content; show formulas that are plain."""
    parts = []
    at = 0
    unclosed = set()  # tags that are not closed in the rest of the text
    while match := _HELD.search(text, at):
        parts.append(text[at : match.start()])
        at = match.end()
        name = (match[1] or "").lower()
        if not name:
            end = text.find("-->", at)
            at = end + 3 if end >= 0 else len(text)
            if text[at : at + 1] == "\n" and (not match.start() or text[match.start() - 1] == "\n"):
                at += 1  # a comment on its own line is removed with that line
            continue
        parts.append(WALL)
        if not match[2].endswith("/") and name not in unclosed:
            close = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(text, at)
            if close is None:
                unclosed.add(name)
                continue
            if name in _SHOWN_TAGS or "inline" in match[2]:  # <syntaxhighlight inline>
                shown = _SHOWN_TAGS.get(name, str)(text[at : close.start()])
                parts.append(_mark(holes, f"<{name}>") if shown is None else shown.translate(_LITERAL))
            at = close.end()
    return "".join(parts) + text[at:]


def _without_brackets(text: str, wiki: Wiki, infoboxes: bool, holes: list[str]) -> str:
    """Remove tables, and replace templates, links and variants of the language by what they show."""
    parts: list[str] = []
    opened: list[tuple[str, int]] = []  # open brackets: kind, and the part at which their content begins
    templates = 0  # open ones
    at = 0
    brackets = _VARIANT_BRACKET.finditer(text) if wiki.language in VARIANTS else _BRACKET.finditer(text)
    for match in brackets:
        parts.append(text[at : match.start()])
        at = match.end()
        bracket = match[0].strip("\n\t :*#")[:2].lower()
        if bracket in _OPENING:
            kind = _OPENING[bracket]
            if bracket == "{|":
                parts.append("\n")
            opened.append((kind, len(parts)))
            if bracket in _KEPT_IF_OPEN:
                parts.append(_KEPT_IF_OPEN[bracket])
            templates += kind == "template"
            continue
        kind = _CLOSING[bracket]
        if kind == "template" and templates:
            templates -= 1
            while opened[-1][0] != kind:
                opened.pop()
        while kind == "table" and opened and opened[-1][0] == "link":
            opened.pop()
        if opened and opened[-1][0] == kind:
            start = opened.pop()[1]
            content = "".join(parts[start:]) if len(opened) < DEEPEST else ""
            if kind == "template":
                shown = _template(content, infoboxes, holes)
            elif kind == "variant":
                variant = variant_text(content.removeprefix("-{"), wiki.language)
                shown = _mark(holes, "-{}-") if variant is None else variant
            else:
                shown = _label(content, wiki) if kind == "link" else ""
            parts[start:] = [shown.translate(_WITHIN) if templates and kind != "link" else shown]
        elif kind == "variant":
            parts.append(bracket)
    parts.append(text[at:])
    return "".join(parts)


def _template(content: str, infoboxes: bool, holes: list[str]) -> str:
    """Return the text that a template shows, or the mark of a hole."""
    if not content:
        return _mark(holes, "{{}}")  # empty, or nested too deeply
    if infoboxes and is_infobox(content):
        return infobox_lines(content)
    shown = template_text(content)
    return _mark(holes, unknown_name(content)) if shown is None else shown


def _label(link: str, wiki: Wiki) -> str:
    """Return the text that a link shows: its label or target; "" for a file, a category or another language."""
    target, pipe, label = link.partition("|")
    target = target.strip()
    namespace, colon, _ = target.partition(":")
    if "\n" in target:
        return link
    name = namespace.strip().lower()
    if colon and namespace and name not in wiki.media:
        if name in wiki.hiding or (not pipe and _LANGUAGE.fullmatch(namespace)):
            return ""
        if _FILE.fullmatch(target, target.rfind(".")):
            return ""
    return unquoted(paired(label.strip() or target.removeprefix(":")))


class _Page:
    """Joins lines to segments, without the sections of unwanted headings (in lower case) and their subsections."""

    def __init__(self, unwanted: frozenset[str]) -> None:
        self.segments: list[str] = []
        self.headings: list[int] = []
        self.dropped: list[int] = []  # the holes for which sentences were dropped
        self._lines: list[str] = []  # of the paragraph being read
        self._waiting: list[tuple[int, str]] = []  # headings without text so far, with their levels
        self._unwanted = unwanted
        self._within = 0  # the level of the unwanted heading whose section is being read; 0: of none

    def add(self, line: str) -> None:
        """Add the next line of the page, without blanks around it."""
        mark = line[:1]
        if not line or mark == "|" or (mark == "!" and "|" in line) or line.startswith("----"):
            # bars are the remains of a broken table
            self.end_paragraph()
        elif mark == "=" and line[-1] == "=" and line.strip("= "):
            self.end_paragraph()
            self._head(line)
        elif mark in "*#:;":
            self.end_paragraph()
            self._lines.append(unquoted(line.lstrip("*#:; ")))
            self.end_paragraph()
        else:
            self._lines.append(unquoted(line))

    def _head(self, line: str) -> None:
        level = len(line) - len(line.lstrip("="))
        while self._waiting and self._waiting[-1][0] >= level:
            self._waiting.pop()
        if self._within and level > self._within:
            return
        heading = self._finished(unquoted(line.strip("=")))
        self._within = level if heading.lower().replace(" ", "_") in self._unwanted else 0
        if heading and not self._within:
            self._waiting.append((level, heading))

    def end_paragraph(self) -> None:
        """End the paragraph; if it has words, add it after the headings that wait for text."""
        if not self._lines:
            return
        paragraph = self._finished(" ".join(self._lines))
        self._lines = []
        if paragraph and not self._within:
            self.headings.extend(range(len(self.segments), len(self.segments) + len(self._waiting)))
            self.segments.extend(heading for _, heading in self._waiting)
            self._waiting = []
            self.segments.append(paragraph)

    def _finished(self, text: str) -> str:
        """Replace entities, make blanks single, drop sentences with holes, and close what removed templates leave.

        Return "" for a text without words.
        """
        text, dropped = whole_sentences(unescape(text))
        if not self._within:
            self.dropped += dropped
        text = legible_line(text)
        if _GAP.search(text):
            text = _AROUND_GAPS.sub(lambda match: _closed_up(match[0]), text)
        text = _BEFORE_STOP.sub("", text).strip(" ,;")
        return text if _ANY_WORD.search(text) else ""


def _closed_up(run: str) -> str:
    """Close a hole: `( ; ` becomes ` (`, ` , ` becomes `, `, and ` ()` is removed."""
    result: list[str] = []
    for character in run:
        if character in ",;:)" and result and result[-1] == " ":
            result.pop()
        end = result[-1] if result else ""
        if character == ")":
            while result and result[-1] in " ,;:":
                result.pop()
            if result[-2:] == [" ", "("]:
                del result[-2:]
                continue
        elif (character in ",;" and end in ("(", ",", ";")) or (character == " " and end in ("(", " ")):
            continue
        result.append(character)
    return "".join(result)
