"""LRL (Ma et al., 2023): a language model on a server writes the order of a window's passages, and that is read.

`deepsiam.trainer.ranking.server` is the client.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.ranker import NUMBER, URL, WORD, Ranker, check_options
from deepsiam.trainer.ranking.rankers.labels import ListOptions, text_of, window_and_stride
from deepsiam.trainer.ranking.rankers.sorting import Window, sort_together
from deepsiam.trainer.ranking.retrieval.encode import places
from deepsiam.trainer.ranking.retrieval.shared import compute_my_batches
from deepsiam.trainer.ranking.retrieval.system import List
from deepsiam.trainer.ranking.server import AT_ONCE, EXAMPLE, TIMEOUT, Server, is_local
from deepsiam.trainer.training.engine.world import say, warn

NAME = "lrl"
OPTIONS = {"url": URL, "model": WORD, "window": NUMBER, "stride": NUMBER, "timeout": NUMBER}
WINDOW, STRIDE = 20, 10
WORDS = 300  # of a passage; halved until the server takes the prompt


class GeneratedLists(Ranker):
    """Ranks lists by the orders that a model writes; the option `url` says where."""

    name = title = kind = NAME
    searches = by_itself = False
    options = ListOptions(WINDOW, STRIDE)
    server: Server | None = None

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    def identity(self) -> dict[str, str]:
        return {"fingerprint": f"{NAME} {self.server}"}

    def with_options(self, options: Mapping[str, str]) -> GeneratedLists:
        check_options(options, OPTIONS, NAME)
        if "url" not in options or "model" not in options:
            raise ValueError(f"{NAME} asks a server: write {NAME}(url={EXAMPLE}, model=NAME)")
        if not is_local(options["url"]):
            raise ValueError(f"'{options['url']}': the server is one of this machine, such as {EXAMPLE}")
        ranker = copy.copy(self)
        ranker.options = ListOptions(*window_and_stride(options, WINDOW))
        ranker.server = Server(options["url"], options["model"], int(options.get("timeout", TIMEOUT)))
        return ranker

    def passes(self, documents: int) -> int:
        return self.options.passes(documents)

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        """Score each list's documents, fp32 [n]: n for the best, 1 for the last.

        Raises:
            InputError: the server does not answer, or not to what is asked.
        """
        total = sum(self.passes(len(documents)) for _, documents in lists)
        warn(f"{work}: {total:,} requests, {total / len(lists):,.0f} a query")
        progress = unread = 0
        with meter(work, "requests", total) as report, ThreadPoolExecutor(AT_ONCE) as pool:

            def ask(windows: Sequence[Window]) -> list[list[int]]:
                return list(pool.map(lambda window: self._ask(window[1], lists[window[0]]), windows))

            def judge(windows: Sequence[Window]) -> list[list[int]]:
                nonlocal progress, unread
                orders = list[list[int]]()
                parts = (windows[i : i + AT_ONCE] for i in range(0, len(windows), AT_ONCE))
                for part, answers in compute_my_batches(parts, ask):
                    for (_, window), passage_places in zip(part, answers, strict=True):
                        unread += not passage_places
                        orders.append([window[i] for i in complete(passage_places, len(window))])
                    report(progress := progress + len(part), "")
                return orders

            orders = sort_together([self.options.sorting(len(documents)) for _, documents in lists], judge)
        if unread:
            say(f"{work}: {unread:,} of {total:,} answers name no passage: their windows keep their order")
        return [(len(order) - places(order)).astype(np.float32) for order in orders]

    def _ask(self, window: Sequence[int], ranked: List) -> list[int]:
        """Return the places in a window of a list that the model names, best first."""
        assert self.server is not None
        query, documents = ranked
        texts = [text_of(self.collection, self.collection.corpus, int(documents[place])) for place in window]
        question, words = text_of(self.collection, self.collection.queries, query), WORDS
        while words:
            passages = [" ".join(text.split()[:words]) for text in texts]
            messages = [{"role": "user", "content": prompt(question, passages)}]
            answer = self.server.write(messages, 16 + 8 * len(window))
            if answer is not None:
                return named_in(answer.text, len(window))
            words //= 2
        raise InputError(f"{self.server.url}: {len(window)} passages of one word are too long: lower the option window")


def prompt(query: str, passages: Sequence[str]) -> str:
    """Fill LRL's template; quotation marks of texts are escaped."""
    lines = [f"PASSAGE{i} = {json.dumps(text, ensure_ascii=False)}" for i, text in enumerate(passages, 1)]
    names = ", ".join(f"PASSAGE{i}" for i in range(1, len(passages) + 1))
    return (
        "\n".join(lines)
        + f"\nQUESTION = {json.dumps(query, ensure_ascii=False)}\nPASSAGES = [{names}]\n"
        + "Sort the PASSAGES by their relevance to the QUESTION, the most relevant first. Answer with the list alone.\n"
        + "SORTED_PASSAGES = ["
    )


def named_in(answer: str, number: int) -> list[int]:
    """Return the places, from 0, of the passages that an answer names, in its order: no repeats and no strangers."""
    numbers = re.findall(r"PASSAGE\s*_?(\d{1,9})", answer, re.IGNORECASE) or re.findall(r"\[(\d{1,9})\]", answer)
    return [i for i in dict.fromkeys(int(name) - 1 for name in numbers) if 0 <= i < number]


def complete(passage_places: Sequence[int], number: int) -> list[int]:
    """Append the places that are missing, in their order."""
    return [*passage_places, *sorted({*range(number)} - {*passage_places})]
