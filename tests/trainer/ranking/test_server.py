"""The client of a language model's server: what is tried again, and what is refused at once."""

import http.client
from collections.abc import Iterator
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
        ((200, ["choices"]), "its answer is not a chat completion"),
        ((404, b"no such model"), "answered 404: 'no such model'"),
    ],
)
def test_what_no_further_try_would_mend(answer: tuple[int, Any], words: str, pauses: list[float]) -> None:
    with server(lambda _: answer) as (url, asked), pytest.raises(InputError, match=f"^{url}: {words}"):
        Server(url, "tiny").write(HELLO, 7)
    assert len(asked) == 1
    assert not pauses


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER", 1000)
    long = 200, says("x" * 2000)
    with (
        server(lambda _: long) as (url, _),
        pytest.raises(InputError, match=f"{url}: its answer has more than 1,000 b"),
    ):
        Server(url, "tiny").write(HELLO, 7)


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
