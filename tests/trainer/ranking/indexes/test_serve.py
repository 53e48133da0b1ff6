"""The search page: markup stays text, only this machine gets answers, and a real browser shows it."""

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import quote

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import index
from deepsiam.trainer.ranking.indexes import serve
from deepsiam.trainer.ranking.indexes.index import Hit
from deepsiam.trainer.ranking.indexes.serve import MAX_DOCUMENTS, MAX_QUERY, SHOWN, Search, make_server, page
from tests import toy
from tests.trainer.runs import write_run

EVIL = '<script>document.title="broken"</script>"\'&'
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def asked(query: str, k: int) -> list[Hit]:
    return [Hit(f"d{i}", 1 / (i + 1), f"{query} and {k}") for i in range(min(k, 3))]


@contextmanager
def served(host: str = "127.0.0.1", k: int = 7, second: Search = asked) -> Iterator[int]:
    with make_server({"one": asked, "two": second}, host, 0, k) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def get(port: int, path: str, host: str | None = None) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    return response, response.read().decode()


def test_a_client_that_sends_nothing_or_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE_SECONDS", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), 30) as idle:
        drip = socket.create_connection(("127.0.0.1", port), 30)
        with drip, suppress(ConnectionError):
            for byte in b"GET /?q=" + b"x" * 6000:  # until the server closes it: ten minutes of these
                drip.sendall(bytes([byte]))
                time.sleep(0.1)
        assert drip.fileno() < 0
        assert idle.recv(1) == b""
        assert get(port, "/?q=wing")[0].status == 200


def test_nothing_that_is_shown_becomes_markup() -> None:
    html = page(EVIL, 5, {EVIL: [Hit(EVIL, 0.5, EVIL)]})
    assert "<script" not in html
    assert html.count("&lt;") >= 8  # the title, query, system, id and text have two each
    assert 'value="&lt;script&gt;' in html


def test_words_of_the_query_are_marked_and_long_texts_are_cut() -> None:
    text = "The Wing of an aeroplane's wing-tip, a to b. " + "x" * SHOWN
    html = page("wing A tip", 5, {"one": [Hit("d", 0.25, text)]})
    assert re.findall("<mark>(.*?)</mark>", html) == ["Wing", "wing", "tip"]  # short words are not marked
    assert "0.2500" in html
    assert "…" in html
    assert "x" * SHOWN not in html


def test_a_query_is_answered_by_each_system() -> None:
    with served() as port:
        empty, html = get(port, "/")
        assert empty.status == 200
        assert "<li>" not in html
        answer, html = get(port, f"/?q={quote('äther <b>')}&k=2")
    assert html.count("<li>") == 2 * 2
    assert html.index("<h2>one</h2>") < html.index("<h2>two</h2>")
    assert "<mark>äther</mark> &lt;b&gt; and 2" in html
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_the_number_of_documents_has_bounds_and_so_has_a_query() -> None:
    with served() as port:
        for given, k in (
            ("", 7),
            ("0", 7),
            ("x", 7),
            ("-3", 7),
            ("5", 5),
            ("9999", MAX_DOCUMENTS),
            ("9" * 5000, MAX_DOCUMENTS),
        ):
            assert f"word</mark> and {k}" in get(port, f"/?q=word&k={given}")[1]
        _, html = get(port, "/?q=" + "y" * 5000)
        assert "y" * MAX_QUERY in html
        assert "y" * (MAX_QUERY + 1) not in html
    with served(k=2 * MAX_DOCUMENTS) as port:  # that of the command line may be above the bound
        html = get(port, "/?q=word")[1]
        assert f"word</mark> and {2 * MAX_DOCUMENTS}" in html == get(port, f"/?q=word&k={2 * MAX_DOCUMENTS}")[1]


def test_a_search_that_fails_is_answered_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    def damaged(query: str, k: int) -> list[Hit]:
        raise InputError("index/vectors.npy: damaged")

    with served(second=damaged) as port:
        assert get(port, "/?q=word")[0].status == 500
        assert get(port, "/")[0].status == 200
    assert capfd.readouterr().err == "trainer.search: index/vectors.npy: damaged\n"


ASKED = [  # the address that is listened at, the name that is asked for, the path, the status
    ("127.0.0.1", "localhost:1234", "/?q=word", 200),
    ("127.0.0.1", "127.0.0.1", "/?q=word", 200),
    ("127.0.0.1", "[::1]:80", "/?q=word", 200),
    ("127.0.0.1", "localhost:port", "/?q=word", 200),  # only its name counts
    ("127.0.0.1", "evil.example", "/?q=word", 403),  # a name that points to this machine
    ("127.0.0.1", "evil.example:8000", "/?q=word", 403),
    ("127.0.0.1", "\u2100.example".encode("utf-8").decode("latin-1"), "/?q=word", 403),
    ("127.0.0.1", "[", "/?q=word", 400),
    ("127.0.0.1", "]", "/?q=word", 400),
    ("127.0.0.1", "[::1", "/?q=word", 400),
    ("127.0.0.1", "[::zz]", "/?q=word", 400),
    ("127.0.0.1", "localhost", "/etc/passwd", 404),
    ("127.0.0.1", "localhost", "/../", 404),
    ("127.0.0.1", "localhost", "//[", 404),
    ("127.0.0.1", "localhost", "http://[/", 400),
    ("127.0.0.1", "localhost", "http://[x]/", 400),
    ("127.0.0.1", "localhost", "/?q=[", 200),
    ("127.0.0.1", "localhost", "/?q=%ff", 200),
    ("0.0.0.0", "evil.example", "/?q=word", 200),
    ("0.0.0.0", "[", "/?q=word", 400),
]


def test_a_page_elsewhere_cannot_read_what_is_served_to_this_machine_and_malformed_addresses_are_answered() -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        with served(host) as port:
            for _, name, path, status in (row for row in ASKED if row[0] == host):
                assert get(port, path, name)[0].status == status, (name, path)


def test_a_port_in_use_and_an_address_of_another_machine_are_refused() -> None:
    with served() as port, pytest.raises(InputError, match=f"--serve {port}: cannot listen at 127.0.0.1:{port}: "):
        make_server({}, "127.0.0.1", port, 5)
    with pytest.raises(InputError, match="cannot listen at 203.0.113.1:0"):
        make_server({}, "203.0.113.1", 0, 5)


@pytest.mark.slow  # the command itself, and a browser
@pytest.mark.skipif(not BROWSER, reason="needs chromium")
def test_a_browser_shows_what_two_indexes_find(launcher: Path, toy_collection: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        keys = {"max_query_tokens": 8, "max_document_tokens": 16, "seed": seed}
        write_run(tmp_path / name, toy_collection / "tokenizer.json", name="siamese", **keys)
        index.main([str(tmp_path / name), f"--collection={toy_collection}", f"--out={tmp_path / f'index-{name}'}"])
    arguments = [tmp_path / "index-one", "--beside", tmp_path / "index-two", "--serve", "0", "--k", "4"]
    command = [launcher.with_name("python"), "-m", "trainer.search", *map(str, arguments)]
    with subprocess.Popen(command, cwd=toy.ROOT, stdout=subprocess.PIPE, text=True, env=toy.environment()) as process:
        try:
            assert process.stdout is not None
            address = re.match(r"http://127.0.0.1:\d+/", process.stdout.readline())
            assert address
            browser = [
                BROWSER,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path / 'profile'}",
            ]
            page_shown = [*browser, "--dump-dom", f"{address[0]}?q={quote(EVIL)}"]
            shown = subprocess.run(page_shown, stdout=subprocess.PIPE, timeout=120, check=True, text=True).stdout
        finally:
            process.terminate()
    assert shown.count("<li>") == 2 * 4
    assert "<title>&lt;script&gt;" in shown  # the script in the query has not run
    assert "<script" not in shown
