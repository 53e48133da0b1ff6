"""The page of a search: a query box, and what each system finds, side by side; plain HTML without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from deepsiam.data_prep.common.html_page import marked, words_of
from deepsiam.trainer.ranking.indexes.index import Found, Terms, in_words

SHOWN = 600  # characters of a document
STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #222 }
form { display: flex; gap: .5rem; margin-bottom: 1.5rem }
input[type=search] { flex: 1; font: inherit; padding: .4rem .6rem }
button { font: inherit; padding: .4rem 1rem }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 2rem }
h2 { font-size: 1rem; border-bottom: 1px solid #bbb }
ol { padding-left: 1.6rem } li { margin-bottom: .8rem }
.name { color: #666; font-size: .85rem; overflow-wrap: anywhere }
p { margin: .1rem 0; overflow-wrap: anywhere } mark { background: #fde68a }
@media print { form { display: none } }
"""


def page(query: str, k: int, found: Mapping[str, Sequence[Found]]) -> str:
    """Return the page for a query and what each system found for it; both are escaped and cannot become markup."""
    columns = "".join(_column(system, documents, words_of(query)) for system, documents in found.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(query) or "Search"}</title>'
        f"<style>{STYLE}</style></head><body><form>"
        f'<input type="search" name="q" value="{escape(query)}" autofocus aria-label="Query">'
        f'<input type="hidden" name="k" value="{k}"><button>Search</button></form><main>{columns}</main></body></html>'
    )


def _column(system: str, documents: Sequence[Found], words: set[str]) -> str:
    items = "".join(
        f'<li><div class="name">{escape(name)} &middot; {score:.4f}</div><p>{marked(text, words, SHOWN)}</p>'
        f"{_terms(terms)}</li>"
        for name, score, text, terms in documents
    )
    return f"<section><h2>{escape(system)}</h2><ol>{items}</ol></section>"


def _terms(terms: Terms) -> str:
    """Show the terms that a document shares with the query, with what each adds to the score."""
    return f'<div class="name">{escape(in_words(terms))}</div>' if terms else ""
