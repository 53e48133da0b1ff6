"""Serve the page of a search to this machine's browser."""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.deadline import deadline
from deepsiam.trainer.ranking.indexes.index import Found
from deepsiam.trainer.ranking.indexes.page import page

MOST, LONGEST, DIGITS = 100, 1000, 9  # documents that a page shows; characters of a query, of their number
IDLE_SECONDS = 30  # for a request to arrive, and for each part of the answer to be taken
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

Search = Callable[[str, int], list[Found]]


def make_server(systems: Mapping[str, Search], host: str, port: int, k: int) -> ThreadingHTTPServer:
    """Return a server of the page that already listens; `serve_forever` answers requests.

    Args:
        systems: functions by name; each finds the best documents for a query.
        host: the address to listen at.
        port: 0 takes any that is free.
        k: documents to show for each query, unless the address says otherwise.

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
                url, asked = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            except ValueError:  # a malformed address, such as [
                self.send_error(HTTPStatus.BAD_REQUEST, "Malformed address or Host header")
                return
            if not _is_asked_of(asked, host):
                self.send_error(HTTPStatus.FORBIDDEN, "This page is served to this machine alone")
            elif url.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                fields = parse_qs(url.query)
                query, most = fields.get("q", [""])[0][:LONGEST].strip(), fields.get("k", [""])[0][:DIGITS]
                wanted = min(int(most), max(MOST, k)) if most.isdecimal() and int(most) else k
                try:
                    with one_at_a_time:
                        found = {name: search(query, wanted) for name, search in systems.items()} if query else {}
                except InputError as error:  # such as a file of the index that is damaged
                    print(f"trainer.search: {error}", file=sys.stderr, flush=True)
                    self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The search failed: see the terminal")
                    return
                self._answer(page(query, wanted, found).encode())

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
            """Do not log requests."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InputError(f"--serve {port}: cannot listen at {host}:{port}: {error.strerror or error}") from error


def _is_asked_of(name: str, host: str) -> bool:
    """Return whether to answer a request whose Host header names the host `name`.

    A web page from elsewhere can make its own host name point to this machine, and so read what is served to this
    machine only. So where only this machine can connect, the name must be this machine's.
    """
    if not _is_loopback(host):
        return True
    return name == "localhost" or _is_loopback(name)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
