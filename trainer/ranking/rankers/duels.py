"""Re-rank lists by a model that says which of two documents is more relevant to a query (duoBERT)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.models.arrays import on_device
from deepsiam.models.matching.duobert import DuobertConfig
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.ranker import NUMBER, ModelRanker, check_options, split_by_list
from deepsiam.trainer.ranking.retrieval.encode import distinct
from deepsiam.trainer.ranking.retrieval.system import List
from deepsiam.trainer.training.engine.world import warn

if TYPE_CHECKING:
    from typing_extensions import Self

AGGREGATES = ("sum", "binary", "min", "max", "log_sum")
OPTIONS = {  # and what each may be
    "aggregate": "|".join(AGGREGATES),
    "pairs": f"ordered|unordered|{NUMBER}",
    "most": NUMBER,
}


class DuelOptions(NamedTuple):
    """How duels become scores; p_ij is the probability that document i is more relevant than document j."""

    aggregate: str = "sum"  # of p_ij over j
    pairs: str = "ordered"  # all i ≠ j; or `unordered`: i before j, and p_ji = 1 - p_ij; or m: m of all j for each i
    most: int = 100  # documents of a list

    def count(self, documents: int) -> int:
        """Return the number of duels among the documents of a list."""
        if self.pairs == "unordered":
            return documents * (documents - 1) // 2
        opponents = max(documents - 1, 0)
        return documents * (opponents if self.pairs == "ordered" else min(int(self.pairs), opponents))

    def duels(self, query: int, documents: Sequence[int]) -> np.ndarray:
        """Return the duels of a list, as places of two documents, int64 [D, 2].

        Opponents are drawn by the numbers of query and document: the order of the list does not matter.
        """
        number = len(documents)
        if self.pairs == "unordered":
            return np.argwhere(np.triu(np.ones((number, number), bool), 1))
        if self.pairs == "ordered" or int(self.pairs) >= number - 1:
            return np.argwhere(~np.eye(number, dtype=bool))
        order = np.argsort(documents, kind="stable")
        rngs = keyed_rngs("opponents", [(query, int(document)) for document in documents])
        opponents = [rng.choice(order[order != i], int(self.pairs), replace=False) for i, rng in enumerate(rngs)]
        return np.stack([np.repeat(np.arange(number), int(self.pairs)), np.concatenate(opponents)], axis=1)

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Aggregate the logits of p_ij, fp64 [n, n] and NaN without a duel: fp32 [n]; one document alone scores 0."""
        if len(logits) < 2:
            return np.zeros(len(logits), np.float32)
        logs = log_chances(logits)
        scores = {
            "sum": lambda: np.nansum(np.exp(logs), axis=1),
            "binary": lambda: (logits > 0).sum(axis=1),
            "min": lambda: np.nanmin(np.exp(logs), axis=1),
            "max": lambda: np.nanmax(np.exp(logs), axis=1),
            "log_sum": lambda: np.nansum(logs, axis=1),
        }[self.aggregate]()
        return np.asarray(scores, np.float32)


def log_chances(logits: np.ndarray) -> np.ndarray:
    """Compute log p of logits; NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        logs: np.ndarray = -np.logaddexp(0, -logits)
    return logs


def position_bias(tables: Sequence[np.ndarray]) -> float | None:
    """Return the mean of |p_ij + p_ji - 1| over all pairs, from the logits of both orders; None without pairs."""
    chances = [np.exp(log_chances(table)) for table in tables]
    pairs = [np.abs(p + p.T - 1)[np.triu_indices(len(p), 1)] for p in chances]
    return float(np.concatenate(pairs).mean()) if any(map(len, pairs)) else None


class DuelRanker(ModelRanker):
    """Re-ranks lists by comparing their documents, two at a time."""

    searches = by_itself = False
    method: DuobertConfig
    options = DuelOptions()

    def __init__(self, trained: LoadedModel, collection: Collection, precision: str | None = None) -> None:
        super().__init__(trained, collection, precision)
        self._logits: dict[Hashable, np.ndarray] = {}  # of lists: rankers of other aggregates share them

    def with_collection(self, collection: Collection) -> Self:
        ranker = super().with_collection(collection)
        ranker._logits = {}  # by the numbers of texts
        return ranker

    def with_options(self, options: Mapping[str, str]) -> DuelRanker:
        check_options(options, OPTIONS, "duels")
        ranker = copy.copy(self)
        typed = {name: int(value) if name == "most" else value for name, value in options.items()}
        ranker.options = DuelOptions(**typed)  # type: ignore[arg-type]
        return ranker

    def passes(self, documents: int) -> int:
        return self.options.count(documents)

    def require_depth(self, depth: int) -> None:
        super().require_depth(depth)
        if depth > self.options.most:
            raise InputError(
                f"{self.title} would need {self.passes(depth):,} forward passes for a list of {depth:,} documents: "
                f"re-rank {self.options.most:,} or fewer, or allow it with the option most={depth}"
            )

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query, fp32 [n], by its duels; equal texts get the score of the first.

        Duels that are equal after truncation are fought once. `position_bias` becomes that of these lists.

        Raises:
            InputError: a list is too long, or a logit is not finite.
        """
        self.require_depth(max([2, *(len(documents) for _, documents in lists)]))
        duels = [self.options.duels(query, documents) for query, documents in lists]
        ends = np.cumsum([len(documents) for _, documents in lists])
        texts, entries = self._distinct(lists)
        key = self.options.pairs, tuple((query, *map(int, documents)) for query, documents in lists)
        if key not in self._logits:
            starts = [0, *ends[:-1].tolist()]
            pairs = np.concatenate([places + start for places, start in zip(duels, starts, strict=True)])
            self._logits[key] = self._duel_logits(texts[pairs], entries, len(lists), work)
        logits_of_lists = np.split(self._logits[key], np.cumsum(list(map(len, duels)))[:-1])
        scores, tables = [], []
        for places, logits, numbers in zip(duels, logits_of_lists, split_by_list(texts, lists), strict=True):
            table = np.full((len(numbers), len(numbers)), np.nan)
            table[places[:, 0], places[:, 1]] = logits
            if self.options.pairs == "unordered":
                table[places[:, 1], places[:, 0]] = -logits
            tables.append(table)
            _, first_places, text_of = np.unique(numbers, return_index=True, return_inverse=True)
            scores.append(self.options.scores(table)[first_places][text_of])
        if self.options.pairs == "ordered":
            self.position_bias = position_bias(tables)
        return scores

    def _distinct(self, lists: Sequence[List]) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Number the distinct texts of queries with a document: each document's number, and what each number reads."""
        framing = self.method.duel_framing(self.loaded.tokenizer)
        entries = [(query, int(document)) for query, documents in lists for document in documents]

        def rows() -> Iterator[np.ndarray]:
            for query, document in entries:
                query_ids, document_ids = framing.cut(*self._tokens(query, document))
                yield np.concatenate([[len(query_ids)], query_ids, document_ids])

        numbers, first_entries = distinct(rows())
        return numbers, [entries[i] for i in first_entries.tolist()]

    def _tokens(self, query: int, document: int) -> tuple[np.ndarray, np.ndarray]:
        return self.collection.queries.tokens(query), self.collection.corpus.tokens(document)

    def _duel_logits(self, pairs: np.ndarray, entries: Sequence[tuple[int, int]], lists: int, work: str) -> np.ndarray:
        """Compute the logit of each pair of numbers, int64 [D, 2]: fp32 [D], each distinct pair once."""
        distinct_pairs, pair_numbers = np.unique(pairs[:, 0] * len(entries) + pairs[:, 1], return_inverse=True)
        firsts, seconds = np.divmod(distinct_pairs, len(entries))
        warn(f"{work}: {len(firsts):,} forward passes of two documents, {len(firsts) / lists:,.0f} a query")
        framing = self.method.duel_framing(self.loaded.tokenizer)
        texts = [framing.cut(*self._tokens(*entry)) for entry in entries]
        queries, documents = (np.array(list(map(len, side))) for side in zip(*texts, strict=True))

        def fight(batch: list[int]) -> torch.Tensor:
            a, b = ([texts[i] for i in side[batch].tolist()] for side in (firsts, seconds))
            sides = [query for query, _ in a], [text for _, text in a], [text for _, text in b]
            logits: torch.Tensor = self.model.score_duels(**on_device(framing.arrays(*sides), self.device))
            return logits

        lengths = queries[firsts] + documents[firsts] + documents[seconds] + framing.frame
        with meter(work, "pairs of documents", len(firsts)) as report:
            logits = self.by_length(lengths.tolist(), fight, lambda progress: report(progress, ""))
        return logits[pair_numbers]
