"""A real HTTP server for a folder, on a free port, that counts requests and misbehaves on demand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Answer = Callable[["Handler", bytes], None]


class Handler(BaseHTTPRequestHandler):
    server: FolderServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        path, _, query = self.path.partition("?")
        name = path.rsplit("/", 1)[-1]
        with self.server.guard:
            self.server.queries[name] = query
            number = self.server.requests[name]
            self.server.requests[name] += 1
            self.server.headers[name] = dict(self.headers)
            answers = self.server.misbehaviour.get(name, [])
        file = self.server.folder / name
        content = file.read_bytes() if file.is_file() else None
        if number < len(answers):
            answers[number](self, content or b"")
        elif content is None:
            self.fail(404)
        else:
            self.send(content)

    def send(self, content: bytes, claimed: int | None = None, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if claimed is None else claimed))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def fail(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


class FolderServer(ThreadingHTTPServer):
    """By file name: `requests` counts requests, `misbehaviour` has the answers to the first ones.

    `queries` has the query of the last request.
    """

    daemon_threads = True

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.guard = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.queries: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.misbehaviour: dict[str, list[Answer]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/data"

    def handle_error(self, *arguments: object) -> None:
        """Print nothing: in many tests the client hangs up on purpose."""


@contextmanager
def serving(folder: Path) -> Iterator[FolderServer]:
    with FolderServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def status(number: int) -> Answer:
    return lambda handler, content: handler.fail(number)


def cut_short(handler: Handler, content: bytes) -> None:
    """Announce the whole file and close the connection half-way."""
    handler.send(content[: len(content) // 2], claimed=len(content))
    handler.close_connection = True


def shorter(handler: Handler, content: bytes) -> None:
    handler.send(content[:-512])


def wrong_bytes(handler: Handler, content: bytes) -> None:
    handler.send(bytes([content[0] ^ 1]) + content[1:])


def endless(handler: Handler, content: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(b"more" * 4096)
