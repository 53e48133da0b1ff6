"""An export is loaded offline."""

import socket

import pytest


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("loading an export asked the network for something")

    monkeypatch.setattr(socket.socket, "connect", refuse)
