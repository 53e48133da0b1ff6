"""A language model's server of this machine, which answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of this machine, by its URL, and the requests that it gets: their path, headers and body."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "headers": dict(self.headers), **body})
            status, content = answer(body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

        def log_message(self, *_: Any) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/v1", asked
    finally:
        serving.shutdown()
        serving.server_close()


def says(written: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": written}}]}
