"""Serve the page of a search to this machine's browser: a query box, and what each system finds, side by side."""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.html_page import marked, words_of
from deepsiam.trainer.ranking.deadline import deadline
from deepsiam.trainer.ranking.indexes.index import Hit, in_words

MAX_DOCUMENTS, MAX_QUERY, DIGITS = 100, 1000, 9  # documents that a page shows; characters of a query, of their number
IDLE_SECONDS = 30  # for a request to arrive, and for each part of the answer to be taken
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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

Search = Callable[[str, int], list[Hit]]


def make_server(systems: Mapping[str, Search], host: str, port: int, k: int) -> ThreadingHTTPServer:
    """Return a server of the page that already listens; `serve_forever` answers requests.

    The page shows the k best documents of each system, unless its address says another number; port 0 is any free one.

    Raises:
        InputError: the port is in use, or the address is not this machine's.
    """
    one_at_a_time = threading.Lock()  # calls of a model

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

        def handle(self) -> None:
            with suppress(ConnectionError, TimeoutError), deadline(self.connection, IDLE_SECONDS) as self.timer:
                super().handle()

        def do_GET(self) -> None:  # noqa: N802 (the library's name)
            self.timer.cancel()  # the request has arrived: a search may take its time
            try:
                url, asked_host = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            except ValueError:  # a malformed address, such as [
                self.send_error(HTTPStatus.BAD_REQUEST, "Malformed address or Host header")
                return
            # A web page from elsewhere can make its own host name point to this machine, and so read what is served to
            # this machine alone: where no other can connect, the name that the browser asks for must be this machine's.
            if _is_loopback(host) and not _is_loopback(asked_host):
                self.send_error(HTTPStatus.FORBIDDEN, "This page is served to this machine alone")
            elif url.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                fields = parse_qs(url.query)
                query, number = fields.get("q", [""])[0][:MAX_QUERY].strip(), fields.get("k", [""])[0][:DIGITS]
                depth = min(int(number), max(MAX_DOCUMENTS, k)) if number.isdecimal() and int(number) else k
                try:
                    with one_at_a_time:
                        rankings = {name: search(query, depth) for name, search in systems.items()} if query else {}
                except InputError as error:  # such as a file of the index that is damaged
                    print(f"trainer.search: {error}", file=sys.stderr, flush=True)
                    self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The search failed: see the terminal")
                    return
                self._answer(page(query, depth, rankings).encode())

        def _answer(self, content: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            for name, value in {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Length": str(len(content)),
                "Content-Security-Policy": POLICY,
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass  # no request is logged

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InputError(f"--serve {port}: cannot listen at {host}:{port}: {error.strerror or error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def page(query: str, k: int, rankings: Mapping[str, Sequence[Hit]]) -> str:
    """Return the page for a query and what each system found for it; both are escaped and cannot become markup."""
    columns = "".join(_column(system, documents, words_of(query)) for system, documents in rankings.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(query) or "Search"}</title>'
        f"<style>{STYLE}</style></head><body><form>"
        f'<input type="search" name="q" value="{escape(query)}" autofocus aria-label="Query">'
        f'<input type="hidden" name="k" value="{k}"><button>Search</button></form><main>{columns}</main></body></html>'
    )


def _column(system: str, documents: Sequence[Hit], words: set[str]) -> str:
    items = "".join(
        f'<li><div class="name">{escape(name)} &middot; {score:.4f}</div><p>{marked(text, words, SHOWN)}</p>'
        + f'<div class="name">{escape(in_words(terms))}</div>' * bool(terms)
        + "</li>"
        for name, score, text, terms in documents
    )
    return f"<section><h2>{escape(system)}</h2><ol>{items}</ol></section>"
