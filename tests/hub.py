"""A stand-in of the Hugging Face Hub, which serves repositories of this process and takes commits."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

INFO = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?")
TREE = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)")
FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Hub(ThreadingHTTPServer):
    """Repositories by kind and name, each a list of commits; every revision but a commit is the newest one.

    Attributes:
        requests: the method and path of all requests.
        answer: status, content type and body with which every request is answered, if set.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[tuple[str, str], list[dict[str, bytes]]] = {}
        self.requests: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.answer: tuple[int, str, bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, name: str, files: Path | Mapping[str, bytes], kind: str = "models") -> str:
        """Commit the files of a folder, or given ones, and return the commit's hash."""
        if isinstance(files, Path):
            paths = [path for path in sorted(files.rglob("*")) if path.is_file()]
            files = {path.relative_to(files).as_posix(): path.read_bytes() for path in paths}
        commits = self.repositories.setdefault((kind, name), [])
        commits.append(dict(files))
        return commit_hash(commits[-1])

    def of(self, kind: str, name: str, revision: str | None) -> dict[str, bytes] | None:
        commits = self.repositories.get((kind, name), [])
        return next((c for c in reversed(commits) if revision in (None, "main", "v1", commit_hash(c))), None)


def commit_hash(files: Mapping[str, bytes]) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def reply(self, status: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def path_and_body(self) -> tuple[str | None, bytes]:
        """Return the path, or None where `answer` was sent instead, and the body of a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        if self.server.answer:
            status, kind, content = self.server.answer
            self.reply(status, content, Content_Type=kind)
            return None, body
        return path, body

    def do_GET(self) -> None:  # noqa: N802  http.server's name
        path, _ = self.path_and_body()
        if path is None:
            return None
        if match := TREE.fullmatch(path):
            files = self.server.of(*match.groups())
            if files is not None:
                tree = [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(files[name]),
                        "oid": hashlib.sha1(files[name]).hexdigest(),
                    }
                    for name in files
                ]
                return self.reply(200, tree)
        elif match := INFO.fullmatch(path):
            files = self.server.of(*match.groups())
            if files is not None:
                info = {"id": match[2], "sha": commit_hash(files), "siblings": [{"rfilename": name} for name in files]}
                return self.reply(200, info)
        elif match := FILE.fullmatch(path):
            files = self.server.of("datasets" if match[1] else "models", match[2], match[3])
            if files is not None and (content := files.get(match[4])) is not None:
                etag = f'"{hashlib.sha1(content).hexdigest()}"'
                return self.reply(200, content, ETag=etag, X_Repo_Commit=commit_hash(files))
        return self.reply(404, {"error": "not found"})

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def do_POST(self) -> None:  # noqa: N802  http.server's name
        path, body = self.path_and_body()
        if path is None:
            return
        if path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            name = f"{json.loads(body)['organization']}/{json.loads(body)['name']}"
            self.reply(200, {"url": f"{self.server.endpoint}/{name}", "id": name})
        elif path == "/api/validate-yaml":
            self.reply(200, {"warnings": [], "errors": []})
        elif path.endswith("/preupload/main"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.reply(200, {"files": files})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            lines = [json.loads(line) for line in body.splitlines()]
            values = [line["value"] for line in lines if line["key"] == "file"]
            commit = self.server.publish(match[1], {v["path"]: base64.b64decode(v["content"]) for v in values})
            url = f"{self.server.endpoint}/{match[1]}/commit/{commit}"
            self.reply(200, {"success": True, "commitOid": commit, "commitUrl": url})
        else:
            self.reply(404, {"error": "not found"})


@contextmanager
def serving(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve a hub, which this process and those that it starts use, with a cache of their own."""
    with Hub() as hub:
        Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        use(hub.endpoint, cache, monkeypatch)
        yield hub
        hub.shutdown()


def use(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, where the library may be imported already, and those that it starts use a hub."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
