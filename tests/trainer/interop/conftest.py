"""An export is loaded offline."""

import socket
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def refuse(own: socket.socket, address: Any) -> None:
        assert own.family == socket.AF_UNIX, "loading an export asked the network for something"
        connect(own, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
