"""The client of a language model's server: what is tried again, and what is refused at once."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking import server as client
from deepsiam.trainer.ranking.server import Server, Written, is_local
from tests.ports import free_port
from tests.trainer.ranking.served import says, server

HELLO = [{"role": "user", "content": "hello"}]
BUSY = 503, {"error": "loading the model"}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited, which are not."""
    waited = list[float]()
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


def test_a_chat_is_sent_and_its_answer_read(pauses: list[float]) -> None:
    cut_off = {"choices": [{"message": {"content": "the sh"}, "finish_reason": "length"}]}
    with server(lambda body: (200, says("yes") if body["temperature"] else cut_off)) as (url, asked):
        assert Server(url, "tiny").write(HELLO, 7, 0.5, 3) == Written("yes", True)
        assert Server(url, "tiny").write(HELLO, 7) == Written("the sh", False)
    assert (
        asked[0].items() >= {"model": "tiny", "messages": HELLO, "max_tokens": 7, "temperature": 0.5, "seed": 3}.items()
    )
    assert "seed" not in asked[1]
    assert not pauses


def test_a_busy_server_is_asked_again_after_longer_and_longer(pauses: list[float]) -> None:
    answers: Iterator[Any] = iter([BUSY, (429, b""), (200, says("at last"))])
    with server(lambda _: next(answers)) as (url, asked):
        assert Server(url, "tiny").write(HELLO, 7) == Written("at last", True)
    assert pauses == [*client.PAUSES[:2]]
    assert [request["messages"] for request in asked] == [HELLO] * 3


def test_a_server_that_dies_is_tried_and_given_up(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(InputError, match=f"{url}: no answer .*: start the server there, or name another url"):
        Server(url, "tiny").write(HELLO, 7)
    assert pauses == [*client.PAUSES]

    def lie(self: http.client.HTTPResponse, _: int) -> bytes:
        raise http.client.IncompleteRead(b"{", 100)

    monkeypatch.setattr(http.client.HTTPResponse, "read", lie)
    with (
        server(lambda _: (200, b"{}")) as (url, _),
        pytest.raises(InputError, match=r"no answer \(IncompleteRead\(1 b"),
    ):
        Server(url, "tiny").write(HELLO, 7)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"<html>welcome</html>"), "its answer is not a chat completion: b'<html>"),
        ((200, {"choices": [{"message": "yes"}]}), "its answer is not a chat completion"),
        ((200, {"choices": []}), "its answer is not a chat completion"),
        ((200, ["choices"]), "its answer is not a chat completion"),
        ((200, b'{"choices": ' + b"[" * 500_000), "its answer is not a chat completion"),  # made to cost time
        ((400, b"maximum " * 130_000), "answered 400"),  # and so is this
        ((404, b"no such model"), "answered 404: 'no such model'"),
        ((200, says("x" * client.LONGEST_ANSWER)), "its answer has more than 1,048,576 bytes"),
    ],
    ids=range(8),
)
def test_what_no_further_try_would_mend(answer: tuple[int, Any], words: str, pauses: list[float]) -> None:
    with server(lambda _: answer) as (url, asked), pytest.raises(InputError, match=f"^{url}: {words}") as refused:
        Server(url, "tiny").write(HELLO, 7)
    assert len(asked) == 1
    assert not pauses
    assert len(str(refused.value)) < 400


NEVER = threading.Event()


def drip(answer: BaseHTTPRequestHandler) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000:
        answer.wfile.write(bytes([byte]))
        NEVER.wait(0.01)


def go_on(answer: BaseHTTPRequestHandler) -> None:
    while True:
        answer.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def say_nothing(answer: BaseHTTPRequestHandler) -> None:
    NEVER.wait(1)


@pytest.mark.parametrize("answer", [drip, go_on, say_nothing])
def test_a_server_that_never_comes_to_an_end_is_given_up(answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(ConnectionError):
                answer(self)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{serving.server_port}"
        with pytest.raises(InputError, match=f"{url}: no answer within 0.3 s: allow more by its option timeout"):
            Server(url, "tiny", 0.3).write(HELLO, 7)  # type: ignore[arg-type]
        serving.shutdown()


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80", True),
        ("https://127.0.0.1:8000", False),
        ("http://example.com", False),
        ("http://user@localhost", False),
        ("http://localhost:99999", False),
        ("localhost:8000", False),
    ],
)
def test_a_server_is_one_of_this_machine(url: str, is_it: bool) -> None:
    assert is_local(url) == is_it
