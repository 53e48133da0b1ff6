"""Re-rank by the logits of labels after a prompt: one document a prompt, or a list of them (`label_ranker`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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
from deepsiam.trainer.interop.causal_lm import by_labels
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.ranker import NUMBER, TEXT, ModelRanker, check_options, split_by_list
from deepsiam.trainer.ranking.rankers.sorting import (
    Sorting,
    Window,
    bubble,
    central_order,
    heapsort,
    most_windows,
    slide,
    sort_together,
)
from deepsiam.trainer.ranking.retrieval.encode import places
from deepsiam.trainer.ranking.retrieval.system import List
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.engine.world import warn
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

    @lru_cache  # noqa: B019  (options are a value, and few)
    def passes(self, number: int) -> int:
        """Return the most forward passes that a list takes."""
        return self.shuffles * most_windows(self.sorting(number))


def window_and_stride(options: Mapping[str, str], usual: int) -> tuple[int, int]:
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

    def __init__(self, trained: LoadedModel, collection: Collection, precision: str | None = None) -> None:
        super().__init__(trained, collection, precision)
        with as_input_error(f"{self.title}: method"):
            self.framing = self.method.prompt_framing(trained.tokenizer)

    def with_options(self, options: Mapping[str, str]) -> ByLabels:
        kind_options = {name: value for name, value in options.items() if name != "recipe"}
        ranker = self.with_recipe(options["recipe"]) if "recipe" in options else self
        return ranker.with_options_of_kind(kind_options)

    def with_options_of_kind(self, options: Mapping[str, str]) -> ByLabels:
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
        recipe_model = by_labels(Folder(self.loaded.checkpoint), self.model.trunk, self.loaded.tokenizer, method)
        for remark in recipe_model.remarks:
            warn(remark)
        return (Listwise if method.is_list else Pointwise)(recipe_model, self.collection, self.precision)

    def _prompt(self, query: int, documents: Sequence[int]) -> np.ndarray:
        passages = [text_of(self.collection, self.collection.corpus, i) for i in documents]
        return self.framing.row(text_of(self.collection, self.collection.queries, query), passages)

    def _label_logits(self, prompts: Sequence[np.ndarray]) -> torch.Tensor:
        logits: torch.Tensor = self.model.label_logits(**on_device(self.framing.arrays(list(prompts)), self.device))
        return logits


class Pointwise(ByLabels):
    """Scores each document by its own prompt: log p(yes) - log(p(yes) + p(no))."""

    def passes(self, documents: int) -> int:
        return documents

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        def read(query: int, document: int) -> np.ndarray:
            return self._prompt(query, [document])

        def score(pairs: list[tuple[int, int]]) -> torch.Tensor:
            return self._label_logits([read(*pair) for pair in pairs])

        logits, pair_numbers = self.distinct_scores(lists, work, read, score)
        return split_by_list(self.model.relevance(torch.from_numpy(logits)).numpy()[pair_numbers], lists)


class Listwise(ByLabels):
    """Ranks lists by sorting windows of them; a score is a place, and a document ranks by its list."""

    by_itself = False

    def __init__(self, trained: LoadedModel, collection: Collection, precision: str | None = None) -> None:
        super().__init__(trained, collection, precision)
        self.options = ListOptions(self.framing.most, self.framing.most // 2)

    def with_options_of_kind(self, options: Mapping[str, str]) -> Listwise:
        check_options(options, OPTIONS, "lists")
        sort, label_count = options.get("sort", "window"), self.framing.most
        if (foreign := "top" if sort == "window" else "stride") in options:
            raise ValueError(f"{foreign} is not an option of sort={sort}: leave it out")
        windows = window_and_stride(options, label_count)
        if windows[0] > label_count:
            raise ValueError(f"'{windows[0]}': a window has 2 to {label_count} passages, one for each label")
        numbers = {name: int(options[name]) for name in ("top", "shuffles") if name in options}
        ranker = copy.copy(self)
        ranker.options = ListOptions(*windows, sort, **numbers)
        return ranker

    def passes(self, documents: int) -> int:
        return self.options.passes(documents)

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        """Score each list's documents, fp32 [n]: n for the best, 1 for the last; equal logits keep the list's order.

        `passes_made` becomes that of these lists.
        """
        max_passes = sum(self.passes(len(documents)) for _, documents in lists)
        limit = "" if self.options.sort == "window" else "at most "
        warn(f"{work}: {limit}{max_passes:,} forward passes of lists, {max_passes / len(lists):,.0f} a query")
        scores, passes = list[np.ndarray](), 0
        with meter(work, "forward passes", max_passes) as report:
            for start in range(0, len(lists), LISTS_AT_ONCE):
                held = lists[start : start + LISTS_AT_ONCE]

                def judge(windows: Sequence[Window], held: Sequence[List] = held) -> list[list[int]]:
                    nonlocal passes
                    passes_before, passes = passes, passes + len(windows) * self.options.shuffles
                    return self._judged(windows, held, lambda progress: report(passes_before + progress, ""))

                orders = sort_together([self.options.sorting(len(documents)) for _, documents in held], judge)
                scores += [(len(order) - places(order)).astype(np.float32) for order in orders]
        self.passes_made = passes / len(lists)
        return scores

    def _judged(
        self, windows: Sequence[Window], lists: Sequence[List], report: Callable[[int], None]
    ) -> list[list[int]]:
        """Rank each window by label logits; with several shuffles, take the median ranking."""
        shuffles = self.options.shuffles
        shown: list[list[int]] = []  # each window in its orders
        for number, window in windows:
            query, documents = lists[number]
            shown += [window, *_shuffled(window, query, documents, shuffles - 1)]
        list_numbers = np.repeat([number for number, _ in windows], shuffles).tolist()
        prompts = [
            self._prompt(lists[number][0], [lists[number][1][place] for place in order])
            for number, order in zip(list_numbers, shown, strict=True)
        ]
        lengths = list(map(len, prompts))
        logits = self.by_length(lengths, lambda batch: self._label_logits([prompts[i] for i in batch]), report)
        orders = [
            [order[i] for i in np.lexsort((order, -label_logits[: len(order)]))]  # ties by the old rank
            for order, label_logits in zip(shown, logits, strict=True)
        ]
        return [central_order(orders[i : i + shuffles]) for i in range(0, len(orders), shuffles)]


def _shuffled(window: Sequence[int], query: int, documents: Sequence[int], number: int) -> list[list[int]]:
    # so that an order depends on the query and the window's documents alone
    keys = [(query, i, *(int(documents[place]) for place in window)) for i in range(number)]
    return [[window[i] for i in rng.permutation(len(window))] for rng in keyed_rngs("shuffles", keys)]
