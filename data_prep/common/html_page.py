"""Self-contained HTML pages: no script, font or image from elsewhere; they print in black."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from deepsiam.data_prep.common.words import STOP_WORDS, pieces, split_words

SHORTEST_MARKED = 3  # letters
SHOWN = 320  # characters of a passage
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1a1a1a;
  background: #fff; color-scheme: light }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #bbb }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem }
table { border-collapse: collapse; margin: .6rem 0; max-width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; overflow-wrap: anywhere }
th { border-bottom: 1px solid #888; font-weight: 600 } td.number, th.number { text-align: right; white-space: nowrap }
tr.best td { font-weight: 700 } p { margin: .4rem 0 } .note { color: #555; font-size: .9rem }
.charts { display: flex; flex-wrap: wrap; gap: .6rem } svg { max-width: 100%; height: auto }
svg text { font-size: 11px }
.side-by-side { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem }
ol { padding-left: 1.5rem; margin: .3rem 0 } li { margin-bottom: .5rem; overflow-wrap: anywhere }
mark { background: #fde68a } .relevant { border-left: 3px solid #009e73; padding-left: .5rem }
@media print { body { margin: 0; max-width: none; font-size: 11px } section, svg, li { break-inside: avoid }
  mark { background: none; text-decoration: underline } }
"""


class Number(str):
    """The text of a table's cell that holds a number."""


def page(title: str, sections: Iterable[str]) -> str:
    """Make a page of its sections, which are markup; the title is text."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{chr(10).join(sections)}\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Make a section of a page: a heading, then markup."""
    return f"<section><h2>{escape(title)}</h2>\n{chr(10).join(parts)}</section>"


def paragraph(text: str) -> str:
    """Make a paragraph of text."""
    return f"<p>{escape(text)}</p>"


def note(text: str) -> str:
    """Make a paragraph of small text."""
    return f'<p class="note">{escape(text)}</p>'


def words_of(text: str) -> set[str]:
    """Return the words of a query to mark: none that is in every document, as stop words and short ones."""
    words = set(split_words(text)) - STOP_WORDS
    return {word for word in words if len(word) >= SHORTEST_MARKED or not word.isascii()}


def marked(text: str, words: set[str], limit: int) -> str:
    """Return the first characters of a text, at most `limit`, as markup with some words marked."""
    start = text if len(text) <= limit else text[:limit] + "…"
    parts = ((escape(piece), words.isdisjoint(split_words(piece))) for piece in pieces(start))
    return "".join(part if is_plain else f"<mark>{part}</mark>" for part, is_plain in parts)


def passage(about: str, text: str, words: set[str], *, relevant: bool) -> str:
    """Make an item of a list: what is known about a text, and its start with some words marked."""
    kind = ' class="relevant"' if relevant else ""
    return f'<li{kind}><span class="note">{escape(about)}</span><br>{marked(text, words, SHOWN)}</li>'


def side_by_side(query: str, lists: Mapping[str, Iterable[str]]) -> str:
    """Make a query's text and below it lists of passages, each in a column under its title."""
    columns = "".join(f"<div>{note(title)}<ol>{''.join(items)}</ol></div>" for title, items in lists.items())
    return f'<section><p><b>{escape(query)}</b></p><div class="side-by-side">{columns}</div></section>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], best_row: int | None = None) -> str:
    """Make a table of texts; columns of `Number` are right-aligned, row number `best_row` is bold."""
    lines = [*rows]
    kinds = [bool(lines) and isinstance(cell, Number) for cell in (lines[0] if lines else headings)]

    def cells(tag: str, row: Sequence[str]) -> str:
        number = ' class="number"'
        return "".join(f"<{tag}{number * kind}>{escape(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=True))

    is_best = ' class="best"'
    body = "\n".join(f"<tr{is_best * (i == best_row)}>{cells('td', row)}</tr>" for i, row in enumerate(lines))
    return f"<table><thead><tr>{cells('th', headings)}</tr></thead><tbody>\n{body}\n</tbody></table>"
