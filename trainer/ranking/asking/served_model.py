"""Queries by the model of a server; what it writes is as reproducible as the server, which gets each request's seed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.asking.writer import NEW_TOKENS, Answer, Request, Writer
from deepsiam.trainer.ranking.server import AT_ONCE, Server

BLOCK = 256


class ServedModel(Writer):
    """Asks a server, several requests at once."""

    block = BLOCK

    def __init__(self, server: Server, temperature: float, document_words: int) -> None:
        self.server, self.temperature, self.document_words = server, temperature, document_words
        place = {"server": server.url, "model": server.model}
        self.about = {**place, "temperature": temperature, "document_words": document_words}

    def write(self, requests: Sequence[Request], report: Callable[[int], None]) -> list[Answer]:
        answers, pool = list[Answer](), ThreadPoolExecutor(AT_ONCE)
        try:
            for answer in pool.map(self._ask, requests):
                answers.append(answer)
                report(len(answers))
        finally:
            pool.shutdown(cancel_futures=True)  # of a server that does not answer, nothing more is asked
        return answers

    def _ask(self, request: Request) -> Answer:
        """Ask with fewer words of the document until the server takes them."""
        words, most = request.document.split(), self.document_words
        key = request.prompt.kind.encode() + struct.pack("<3q", *request.key)
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "little") >> 1
        while most:
            text = request.document if len(words) <= most else " ".join(words[:most])
            written = self.server.write(request.prompt.chat(text), NEW_TOKENS, self.temperature, seed)
            if written is not None:
                return Answer(*written, len(words) > most)
            most = min(most, len(words)) // 2
        raise InputError(f"{self.server.url}: the prompt of {request.prompt.kind} is too long: give fewer examples")
