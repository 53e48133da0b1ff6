"""The client of a language model's server with OpenAI's interface (vLLM, llama.cpp, Ollama).

The server is one of this machine: no text of a collection leaves the machine, and no key is sent.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.deadline import deadline

EXAMPLE = "http://127.0.0.1:8000/v1"
LOCAL = ("127.0.0.1", "localhost", "::1")
TIMEOUT = 120  # seconds, usually
AT_ONCE = 8  # requests
PAUSES = (1, 4, 16)  # seconds before each further try
PASSING = (429, 500, 502, 503, 504)  # statuses of a server that is busy, or starts
LONGEST_ANSWER = 1 << 20  # bytes
LONGEST_REASON = 1 << 12  # bytes of a refusal that are looked at


class Written(NamedTuple):
    """What a model wrote."""

    text: str
    is_whole: bool  # it came to an end, before the limit of tokens


class Server(NamedTuple):
    """Where the model is."""

    url: str
    model: str
    timeout: int = TIMEOUT  # seconds of a whole request

    def write(
        self, messages: Sequence[Mapping[str, str]], tokens: int, temperature: float = 0, seed: int | None = None
    ) -> Written | None:
        """Return what the model writes after the messages of a chat; None where they are too long for it.

        Raises:
            InputError: there is no answer, also after further tries, or none of a chat.
        """
        body = {"model": self.model, "messages": list(messages), "temperature": temperature, "max_tokens": tokens}
        status, content = self._answer(json.dumps(body | ({} if seed is None else {"seed": seed})).encode())
        if status == 400 and re.search(rb"context|too long|maximum.*(length|tokens)", content[:LONGEST_REASON]):
            return None
        if status != 200:
            raise InputError(f"{self.url}: answered {status}: {content[:200].decode(errors='replace')!r}")
        if len(content) > LONGEST_ANSWER:
            raise InputError(f"{self.url}: its answer has more than {LONGEST_ANSWER:,} bytes")
        try:
            choice = json.loads(content)["choices"][0]
            text, reason = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{self.url}: its answer is not a chat completion: {content[:200]!r}") from None
        return Written(text if isinstance(text, str) else "", reason != "length")

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the bytes of an answer, trying again while the server is busy or cannot be reached."""
        for pause in PAUSES:
            try:
                status, content = self._post("/chat/completions", body)
                if status not in PASSING:
                    return status, content
            except _NoAnswerError:
                pass
            time.sleep(pause)
        return self._post("/chat/completions", body)

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout)
        try:
            connection.connect()
            with deadline(connection.sock, self.timeout):
                connection.request("POST", parts.path.rstrip("/") + path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read(LONGEST_ANSWER + 1)
        except TimeoutError:
            raise InputError(
                f"{self.url}: no answer within {self.timeout} s: allow more by its option timeout"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = f"{self.url}: no answer ({error}): start the server there, or name another url"
            raise _NoAnswerError(reason) from None
        finally:
            connection.close()


class _NoAnswerError(InputError):
    """A connection was refused or broke off."""


def is_local(url: str) -> bool:
    """Return whether a URL is one of this machine."""
    try:
        parts: Any = urlsplit(url)
        return parts.scheme == "http" and parts.hostname in LOCAL and (parts.port or 80) > 0 and not parts.username
    except ValueError:
        return False
