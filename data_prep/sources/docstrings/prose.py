"""The English of a docstring: its paragraphs without code, tables, field names and markup.

Handles the formats that Python packages use: reStructuredText, Markdown, and the section styles of Google, NumPy and
Sphinx. Descriptions of parameters and results are prose and stay; their names and types are removed.
"""

import inspect
import re
from collections.abc import Callable

from deepsiam.data_prep.text.language import is_prose, word_set
from deepsiam.data_prep.text.normalize import normalise

FIELDS = word_set(
    """args arguments attributes inputs keyword_args keyword_arguments kwargs options other_parameters outputs
    parameters params raises receives return return_value returns throws warns yield yields"""
)
REMARKS = word_set(
    """caution description details example examples explanation hint important note notes overview remark
    remarks summary tip todo usage warning warnings"""
)
DROPPED = word_set("author authors copyright license methods reference references see_also seealso")
PROSE_DIRECTIVES = word_set("attention caution danger hint important note tip warning")
MIN_FIELD_WORDS = 5  # shorter descriptions ("The array.", "float, optional") carry no information

_RULE = re.compile(r"([=\-~^*#`\"'+._])\1{2,}")
_TABLE = re.compile(r"[=-]{2,}(\s+[=-]{2,})+|[+|].*[+|]|\|.*")
_CODE = re.compile(r">>>|\.\.\. |In \[\d+\]:|\$ |#+!?\s|@\w+$")
_FENCE = re.compile(r"```|~~~")
_DIRECTIVE = re.compile(r"\.\.(?:\s+([\w:-]+?)::\s*(.*)|\s+.*|)$")
_SPHINX = re.compile(r"(?::(\w+)(?:\s[^:`]*)?:|[@\\](param|returns?|type|rtype|raises?)\b[^:]*:?)(?:\s+(.*))?$")
_BULLET = re.compile(r"(?:[-*+•]|#\.|\(?(?:\d{1,2}|[a-z])[.)])\s+(.*)")
_NAMES = r"`*\*{0,2}[A-Za-z_][\w.]*`*(?:\s*,\s*`*\*{0,2}[A-Za-z_][\w.]*`*)*"
_TYPED = re.compile(_NAMES + r"\s*\((?:[^()]|\([^()]*\))*\)\s*:(?:\s+(.*))?$")
_ENTRY = re.compile(r"(?:" + _NAMES + r"|[`\w][\w`.,\[\] ]*[\]`])\s*(?:\((?:[^()]|\([^()]*\))*\)\s*)?:(?:\s+(.*))?$")
_DASHED = re.compile(_NAMES + r"\s+--?\s+(.*)$")
_LEAD_IN = re.compile(r"(?:^|(?<=[.!?])\s)[^.!?]*:$")  # the last sentence, if it announces code
_INLINE_SECTION = re.compile(r"(Args|Returns?|Yields?|Raises)\s*:\s+(.+)")

_MAYBE_MARKUP = re.compile(r"[`*\\<\[]|https?:")
_MARKUP: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r":[\w:+.-]{1,60}:`[~!]?([^`<]+)<[^`]*>`"), lambda role: role[1].rstrip()),  # :ref:`text <target>`
    (re.compile(r":[\w:+.-]{1,60}:`~([^`]+)`"), lambda role: role[1].rpartition(".")[2] or role[1]),  # :class:`~a.Name`
    (re.compile(r":[\w:+.-]{1,60}:`[!.]?([^`]+)`"), r"\1"),
    (re.compile(r"`([^`<]+)<[^`]*>`_{1,2}"), lambda link: link[1].rstrip()),  # `text <url>`_
    (re.compile(r"\[`~?([^`]+)`\]"), r"\1"),
    (re.compile(r"\[([^\[\]]+)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)"), r"\1"),  # [text](url)
    (re.compile(r"\[![A-Z]+\]"), ""),  # [!WARNING]
    (re.compile(r"(?<!\s)\s*\[[\w#*-]+\]_"), ""),  # footnote
    (re.compile(r"<?\bhttps?://[^\s>)]+>?"), ""),
    (re.compile(r"</?(?:a|b|br|code|div|em|h\d|hr|i|img|li|ol|p|pre|span|strong|sub|sup|tt|ul)\b[^<>]*>", re.I), ""),
    (re.compile(r"`+[~!]?\.?([^`]*)`+_{0,2}"), r"\1"),
    (re.compile(r"\*\*(?=\S)([^*]+)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=\w)([^*]+)(?<=[\w.!?)])\*(?![\w*])"), r"\1"),
    (re.compile(r"\\([*_`|\\ ])"), r"\1"),
    (re.compile(r"\(\s*\)"), ""),
    (re.compile(r" (?=[.,;:!?](\s|$))"), ""),
]


def paragraphs(docstring: str) -> tuple[str, list[str]]:
    """Return the opening paragraph of a docstring, "" if it is not prose, and the prose paragraphs after it."""
    reader = _Reader(inspect.cleandoc(normalise(docstring)).split("\n"))
    return reader.opening, reader.rest


class _Reader:
    """Reads the lines once; a paragraph ends at a blank line, a change of indent, or an item."""

    def __init__(self, lines: list[str]) -> None:
        self.opening = ""
        self.rest: list[str] = []
        self.begun = False  # whether the opening paragraph has passed
        self.lines: list[str] = []  # of the paragraph being read
        self.indent = 0  # of its first line
        self.item = False  # whether it is a list item or a field: later lines may be indented deeper
        self.field = False  # whether it describes a parameter or a result
        self.section = ""  # name of the section
        self.underlined = False  # NumPy's sections are, and last until the next; Google's are indented
        self.level = 0  # indent of the section's heading
        self.base: int | None = None  # indent of the section's entries
        self.skip: int | None = None  # lines indented deeper than this are code
        self.until_blank = False
        self.fenced = False
        for number, line in enumerate(lines):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            self._line(line.strip(), _indent(line), _indent(following) if following.strip() else 0)
        self._end()

    def _line(self, text: str, indent: int, next_indent: int) -> None:
        if text.startswith("> "):  # a Markdown quotation
            text = text[2:].strip()
        if _FENCE.match(text) or self.fenced:
            self._end_before_code()
            self.fenced ^= bool(_FENCE.match(text)) and not (len(text) > 3 and text.endswith(text[:3]))
            return
        if not text:
            self._end()
            self.until_blank = False
            return
        if self.lines and self.lines[-1].endswith("::") and indent > self.indent:
            self._end()
        if self.skip is not None and indent > self.skip:
            return
        self.skip = None
        if self.until_blank:
            return
        if self.section and not self.underlined and indent <= self.level:
            self._end()
            self.section = ""
        if self.base is None:
            self.base = indent
        if self._handle_markup(text, indent):
            return
        if self.section in FIELDS and self._entry(text, indent, next_indent):
            return
        self._text(text, indent)

    def _handle_markup(self, text: str, indent: int) -> bool:
        """Handle a line of markup; return False for a line of text."""
        if _RULE.fullmatch(text):
            heading = self.lines.pop() if self.lines else ""
            self._end()
            if heading:
                self._begin_section(heading, indent, underlined=True)
        elif _CODE.match(text) or _TABLE.fullmatch(text):
            self._end_before_code()
            self.until_blank = True
        elif text.endswith(":") and _section_name(text) in FIELDS | REMARKS | DROPPED:
            self._end()
            self._begin_section(text, indent, underlined=False)
            self.skip = indent if text.endswith("::") else None
        elif match := _DIRECTIVE.match(text):
            self._end()
            if match[1] not in PROSE_DIRECTIVES:
                self.skip = indent
            elif match[2]:
                self._begin(match[2], indent, item=True)
        elif match := _SPHINX.match(text):
            self._end()
            if "type" in (match[1] or match[2]):
                self.skip = indent
            else:
                self._begin(match[3] or "", indent, item=True, field=True)
        elif (match := _TYPED.match(text)) or (match := _INLINE_SECTION.match(text)):
            self._end()
            self._begin(match[match.lastindex or 0] if match.lastindex else "", indent, item=True, field=True)
        elif match := _BULLET.match(text):
            self._end()
            field = self.section in FIELDS
            entry = (_ENTRY if field and indent == self.base else _TYPED).match(match[1])
            self._begin((entry[1] or "") if entry else match[1], indent, item=True, field=field)
        else:
            return False
        return True

    def _begin_section(self, heading: str, indent: int, underlined: bool) -> None:
        self.section = _section_name(heading)
        self.underlined, self.level, self.base = underlined, indent, None
        self.begun = self.begun or self.section in FIELDS | REMARKS | DROPPED

    def _entry(self, text: str, indent: int, next_indent: int) -> bool:
        """Handle the first line of a field: only its description is text; return False for another line."""
        match = _ENTRY.match(text) or _DASHED.match(text)
        if indent != self.base or (self.lines and not self.underlined and not match):
            return False
        self._end()
        if match:
            described = (match[1] or "") if not self.underlined else ""
            self._begin(described, indent, item=True, field=True)
            return True
        if self.underlined and next_indent > indent:  # a type alone, described on the next line
            return True
        self._begin(text, indent, item=True, field=True)
        return True

    def _text(self, text: str, indent: int) -> None:
        if self.lines and (indent >= self.indent if self.item else indent == self.indent or not self.begun):
            self.lines.append(text)
            return
        self._end()
        if self.skip is None or indent <= self.skip:
            self._begin(text, indent, field=self.section in FIELDS)

    def _begin(self, text: str, indent: int, item: bool = False, field: bool = False) -> None:
        self.begun = self.begun or item
        self.lines = [text] if text else []
        self.indent, self.item, self.field = indent, item, field

    def _end_before_code(self) -> None:
        """End the paragraph, and drop the `For example:` before code that is dropped."""
        self._end()
        if self.rest and self.rest[-1].endswith(":"):
            self.rest[-1] = _LEAD_IN.sub("", self.rest[-1])
            if not self.rest[-1]:
                self.rest.pop()

    def _end(self) -> None:
        """End the paragraph and keep it if it is prose."""
        if not self.lines:
            return
        text = " ".join(self.lines)
        self.lines = []
        if text.endswith("::"):
            self.skip = self.indent
            text = _LEAD_IN.sub("", text)
        if _MAYBE_MARKUP.search(text):
            for pattern, replacement in _MARKUP:
                text = pattern.sub(replacement, text)
        text = " ".join(text.split())
        is_first, self.begun = not self.begun, True
        if self.section in DROPPED or not is_prose(text):
            return
        if self.field and len(text.split()) < MIN_FIELD_WORDS:
            return
        if self.item and text[-1].isalnum():
            text += "."  # items and fields often have no full stop, and would merge
        if is_first:
            self.opening = text
        else:
            self.rest.append(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _section_name(heading: str) -> str:
    return heading.strip().strip(":*#").strip().lower().replace(" ", "_")
