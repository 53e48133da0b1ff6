"""Re-rank by the logits of labels after a prompt: one document a prompt, or a list of them (`label_ranker`)."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.models.arrays import on_device
from deepsiam.models.batching.prompts import PromptFraming
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.options import NUMBER, TEXT, check_options
from deepsiam.trainer.ranking.published import by_labels
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers.sorting import (
    Sorting,
    Window,
    bubble,
    central_order,
    heapsort,
    most_judgements_of_heapsort,
    slide,
    sort_together,
)
from deepsiam.trainer.ranking.retrieval.encode import distinct, places
from deepsiam.trainer.ranking.retrieval.system import List
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

SORTS = ("window", "heap", "bubble")
OPTIONS = {
    "window": NUMBER,
    "stride": NUMBER,
    "sort": "|".join(SORTS),
    "top": NUMBER,
    "shuffles": NUMBER,
    "recipe": TEXT,
}
LISTS_AT_ONCE = 256  # whose windows are held together


class ListOptions(NamedTuple):
    """How a list is ranked by judging a window of its passages at a time."""

    window: int
    stride: int
    sort: str = "window"
    top: int = 10  # of heap and bubble: how many of the best are found
    shuffles: int = 1  # orders in which each window is read: its own, and random ones

    def sorting(self, number: int) -> Sorting:
        """Return what ranks a list, as places in it."""
        if self.sort == "window":
            return slide(range(number), self.window, self.stride)
        return (heapsort if self.sort == "heap" else bubble)(range(number), self.window, self.top)

    def passes(self, number: int) -> int:
        """Return the most forward passes that a list takes."""
        if self.sort == "heap":
            return self.shuffles * most_judgements_of_heapsort(number, self.window, self.top)
        if self.sort == "bubble":
            of_each = (-(-(number - done - 1) // (self.window - 1)) for done in range(min(self.top, number - 1)))
            return self.shuffles * sum(of_each)
        return self.shuffles * (1 + max(0, -(-(number - self.window) // self.stride)) if number > 1 else 0)


def windows_of(options: Mapping[str, str], usual: int) -> tuple[int, int]:
    """Return the window and the stride of options; raise ValueError where they would leave passages out.

    Args:
        usual: the window without the option; the usual stride is half of the window.
    """
    window = int(options.get("window", usual))
    stride = int(options.get("stride", window // 2))
    if window < 2:
        raise ValueError(f"'{window}': a window has 2 passages or more")
    if stride >= window:
        raise ValueError(f"'{stride}': the stride is less than the window, {window}, so that no passage is left out")
    return window, stride


def text_of(collection: Collection, texts: Texts, number: int) -> str:
    """Return a text of a collection; raise InputError where the collection has only its ids."""
    text = texts.text(number)
    if not text and len(texts.tokens(number)):
        raise InputError(f"{collection.directory}: has no text of {texts.ids[number]}: make the collection again")
    return text


class ByLabels(ModelRanker):
    """Re-ranks with prompts; of a published model, a recipe may say which: the option `recipe`."""

    searches = False
    reads_text = True
    method: LabelRankerConfig
    framing: PromptFraming

    def __init__(self, loaded: LoadedModel, collection: Collection, precision: str | None = None) -> None:
        """Read the template; raise InputError where the tokenizer does not suit it."""
        super().__init__(loaded, collection, precision)
        with as_input_error(f"{self.title}: method"):
            self.framing = self.method.prompt_framing(loaded.tokenizer)

    def with_options(self, options: Mapping[str, str]) -> ByLabels:
        """Return the ranker with options of its kind, and a recipe's prompt."""
        if "recipe" not in options:
            return self.with_own(options)
        own = {name: value for name, value in options.items() if name != "recipe"}
        return self.with_recipe(options["recipe"]).with_own(own)

    def with_own(self, options: Mapping[str, str]) -> ByLabels:
        """Return the ranker with options of its kind; raise ValueError for one that it lacks."""
        if options:
            raise ValueError(f"{self.title} has no option but recipe: leave out {next(iter(options))}=...")
        return self

    def with_recipe(self, path: str) -> ByLabels:
        """Return the ranker with the keys of a recipe's method.

        Raises:
            ValueError: it is the ranker of a run, which was trained with its own keys.
            InputError: the recipe is not of a ranker by labels, or the model does not suit it.
        """
        if isinstance(self.loaded, TrainedModel):
            raise ValueError(f"{self.title} was trained with a prompt: leave out recipe=...")
        method = load(FinetuneRecipe, Path(path)).method
        if not isinstance(method, LabelRankerConfig):
            raise ValueError(f"{path}: its method is {method.name}, not label_ranker")
        loaded = by_labels(self.loaded.checkpoint, self.model.trunk, self.loaded.tokenizer, method)
        return (Listwise if method.is_list else Pointwise)(loaded, self.collection, self.precision)

    def _row(self, query: int, documents: Sequence[int]) -> np.ndarray:
        """Make a prompt."""
        passages = [text_of(self.collection, self.collection.corpus, i) for i in documents]
        return self.framing.row(text_of(self.collection, self.collection.queries, query), passages)

    def _logits(
        self, lengths: Sequence[int], row: Callable[[int], np.ndarray], report: Callable[[int], None]
    ) -> np.ndarray:
        """Compute the logits of prompts, fp32 [N, L], from their lengths and what makes each."""

        def of(batch: list[int]) -> torch.Tensor:
            arrays = on_device(self.framing.arrays(list(map(row, batch))), self.device)
            logits: torch.Tensor = self.model.label_logits(**arrays)
            return logits

        return self.by_length(lengths, of, report)


class Pointwise(ByLabels):
    """Scores each document by its own prompt: log p(yes) - log(p(yes) + p(no))."""

    def passes(self, documents: int) -> int:
        """Each document has a prompt."""
        return documents

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query, fp32 [n]; equal prompts are read once, so that they tie.

        Raises:
            InputError: a score is not finite.
        """
        pairs = [(query, int(document)) for query, documents in lists for document in documents]
        lengths = np.empty(len(pairs), np.int64)

        def rows() -> Iterator[np.ndarray]:
            for i, (query, document) in enumerate(pairs):
                row = self._row(query, [document])
                lengths[i] = len(row)
                yield row

        of_pair, first = distinct(rows())

        def row(number: int) -> np.ndarray:
            query, document = pairs[first[number]]
            return self._row(query, [document])

        with meter(what, "pairs", len(first)) as report:
            logits = self._logits(lengths[first].tolist(), row, lambda done: report(done, ""))
        scores = self.model.relevance(torch.from_numpy(logits)).numpy()[of_pair]
        return np.split(scores, np.cumsum([len(documents) for _, documents in lists])[:-1])


class Listwise(ByLabels):
    """Ranks lists by sorting windows of them; a score is a place, and a document ranks by its list."""

    by_itself = False

    def __init__(self, loaded: LoadedModel, collection: Collection, precision: str | None = None) -> None:
        """Take windows as long as there are labels."""
        super().__init__(loaded, collection, precision)
        self.options = ListOptions(self.framing.most, self.framing.most // 2)

    def with_own(self, options: Mapping[str, str]) -> Listwise:
        """Return the ranker with options of `OPTIONS`, which shares its model."""
        check_options(options, OPTIONS, "lists")
        sort, most = options.get("sort", "window"), self.framing.most
        if (foreign := "top" if sort == "window" else "stride") in options:
            raise ValueError(f"{foreign} is not an option of sort={sort}: leave it out")
        windows = windows_of(options, most)
        if windows[0] > most:
            raise ValueError(f"'{windows[0]}': a window has 2 to {most} passages, one for each label")
        numbers = {name: int(options[name]) for name in ("top", "shuffles") if name in options}
        chosen = copy.copy(self)
        chosen.options = ListOptions(*windows, sort, **numbers)
        return chosen

    def passes(self, documents: int) -> int:
        """Each window is a forward pass, in each of its orders; of heap and bubble, the most."""
        return self.options.passes(documents)

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents, fp32 [n]: n for the best, 1 for the last; equal logits keep the list's order.

        `passes_made` becomes that of these lists.

        Raises:
            InputError: a logit is not finite.
        """
        most = sum(self.passes(len(documents)) for _, documents in lists)
        if os.environ.get("RANK", "0") == "0":
            limit = "" if self.options.sort == "window" else "at most "
            passes = f"{limit}{most:,} forward passes of lists, {most / len(lists):,.0f} a query"
            print(f"{what}: {passes}", file=sys.stderr, flush=True)
        scores, made = list[np.ndarray](), 0
        with meter(what, "forward passes", most) as report:
            for start in range(0, len(lists), LISTS_AT_ONCE):
                some = lists[start : start + LISTS_AT_ONCE]

                def judge(windows: Sequence[Window], some: Sequence[List] = some) -> list[list[int]]:
                    nonlocal made
                    before, made = made, made + len(windows) * self.options.shuffles
                    return self._judged(windows, some, lambda done: report(before + done, ""))

                orders = sort_together([self.options.sorting(len(documents)) for _, documents in some], judge)
                scores += [(len(order) - places(order)).astype(np.float32) for order in orders]
        self.passes_made = made / len(lists)
        return scores

    def _judged(
        self, windows: Sequence[Window], lists: Sequence[List], report: Callable[[int], None]
    ) -> list[list[int]]:
        """Rank each window by label logits; with several shuffles, take the median ranking."""
        shown: list[list[int]] = []
        for number, window in windows:
            query, documents = lists[number]
            shown += [window, *_shuffled(window, query, documents, self.options.shuffles - 1)]
        of_window = [number for number, _ in windows for _ in range(self.options.shuffles)]
        rows = [
            self._row(lists[number][0], [lists[number][1][place] for place in order])
            for number, order in zip(of_window, shown, strict=True)
        ]
        logits = self._logits([len(row) for row in rows], rows.__getitem__, report)
        orders = [
            [order[i] for i in np.lexsort((order, -own[: len(order)]))]  # ties by the old rank
            for order, own in zip(shown, logits, strict=True)
        ]
        return [
            central_order(orders[i : i + self.options.shuffles]) for i in range(0, len(orders), self.options.shuffles)
        ]


def _shuffled(window: Sequence[int], query: int, documents: Sequence[int], number: int) -> list[list[int]]:
    """Return a window in random orders, which depend on the query and the window's documents."""
    keys = [(query, i, *(int(documents[place]) for place in window)) for i in range(number)]
    return [[window[i] for i in rng.permutation(len(window))] for rng in keyed_rngs("shuffles", keys)]
