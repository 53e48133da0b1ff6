"""Check before the first step that a split of a collection gives a method what it learns from.

open_pairs.py calls `check_groups` for each source that it opens, and for each held-out split.
"""

import numpy as np

from deepsiam.data_prep.collections.relevant import group_of
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.trainer.training.data.group_source import GroupSource

MOST_COPIES = 10_000  # no document has more copies than this


def check_groups(method: MatchingConfig, source: GroupSource, mined: bool = False) -> list[str]:
    """Return remarks on a split's groups; raise InputError if they do not suit the method.

    `mined`: the groups need not have negatives, because negatives will be mined.
    """
    if method.negatives_per_query > source.negatives:
        raise InputError(
            f"method.negatives_per_query: {method.negatives_per_query}, but split {source.split} has only "
            f"{source.negatives} documents that are not relevant to one of its queries: set {source.negatives} or less"
        )
    if method.has_batch_negatives and not method.has_own_negatives and not source.negatives:
        raise InputError(
            f"method.negatives: all documents of split {source.split} are relevant to one of its queries, which is "
            "left without negatives: add other pairs"
        )
    remarks = _check_hard_negatives(method, source, mined) if method.hard_negatives else []
    if method.taught:
        check_teacher(source, " and ".join(method.taught))
    if method.candidates:
        remarks += _check_candidates(method.candidates.per_query, source)
    if getattr(method, "query", "") == "tokens":
        remarks += _check_queries(method, source)
    if isinstance(classes := getattr(method, "classes", None), int):
        check_classes(source, classes)
    else:
        taught_alone = len(method.taught) == len(method.losses)
        check_relevance(source, " and ".join(method.losses), any_label=taught_alone)
    return remarks


def check_copies(method: MatchingConfig, source: GroupSource, candidates: Candidates) -> None:
    """Raise InputError where copies of a query's relevant documents leave too few negatives to draw."""
    if not 0 <= source.negatives - method.own_negatives < MOST_COPIES:
        return  # refused by `check_groups`, given by the groups themselves, or enough whatever the copies are
    texts, numbers = np.unique(candidates.keys(candidates.pool), return_counts=True)
    copies = dict(zip(texts.tolist(), numbers.tolist(), strict=True))
    for query in np.unique(source.groups.queries[source.used]).tolist():
        tokens, relevant = source.collection.queries.tokens(query), source.relevant.never_negative(query)
        excluded = np.unique(candidates.never_negative(tokens, relevant)).tolist()
        remaining = len(candidates.pool) - sum(copies.get(text, 0) for text in excluded)
        if remaining < method.own_negatives:
            raise InputError(
                f"method.negatives_per_query + method.hard_negatives: {method.own_negatives}, but split {source.split} "
                f"has only {remaining} documents with another text than those relevant to query "
                f"{source.collection.queries.called(query)}: set {remaining} or less"
            )


def _check_queries(method: MatchingConfig, source: GroupSource) -> list[str]:
    """Return a remark if some queries have no tokens that count; raise InputError if no query has any."""
    queries, framing = source.collection.queries, method.query_framing(source.collection.tokenizer)
    numbers = np.unique(source.groups.queries[source.used]).tolist()
    empty_queries = [i for i in numbers if not len(framing.cut(queries.tokens(i)))]
    if len(empty_queries) == len(numbers):
        raise InputError(f"method.query=tokens: the queries of split {source.split} are stop words alone: set encoder")
    if not empty_queries:
        return []
    return [
        f"split {source.split}: {len(empty_queries):,} of {len(numbers):,} queries are stop words alone, such as "
        f"{queries.called(empty_queries[0])}: all documents score 0 for them"
    ]


def _check_hard_negatives(method: MatchingConfig, source: GroupSource, mined: bool) -> list[str]:
    """Return a remark if some groups have fewer negatives than requested, so that the rest are drawn at random.

    Raise InputError if no group has enough negatives, or too few other documents are left to draw from.
    """
    number, counts = method.hard_negatives, source.given_negatives()
    too_few_others = number - counts.min() + method.negatives_per_query > source.negatives
    none_has_enough = number > counts.max() and not mined
    if none_has_enough or (number > counts.min() and too_few_others):
        at = counts.argmax() if none_has_enough else counts.argmin()
        query, number_given = source.query_of(source.used[at]), counts[at]
        fewer = f"set {number_given} or less" if number_given else "mine some (trainer.mine)"
        raise InputError(
            f"method.hard_negatives: {number}, but split {source.split} gives query {query} only "
            f"{number_given}: {fewer}, or draw some at random (method.negatives_per_query)"
        )
    return _fewer(source, counts, "method.hard_negatives", number, "the others are drawn at random")


def _check_candidates(number: int, source: GroupSource) -> list[str]:
    """Return a remark if some groups have fewer candidates than are drawn; raise InputError if all have."""
    counts = 1 + source.given_others()
    if number > (limit := counts.max()):
        raise InputError(
            f"method.candidates.per_query: {number}, but split {source.split} gives no query more than {limit} "
            f"candidates: set {limit} or less"
        )
    return _fewer(source, counts, "method.candidates.per_query", number, "all of theirs are used")


def _fewer(source: GroupSource, counts: np.ndarray, key: str, number: int, effect: str) -> list[str]:
    short_groups = int((counts < number).sum())
    remark = (
        f"split {source.split}: {short_groups:,} of {len(counts):,} groups give fewer than {key}={number}: {effect}"
    )
    return [remark] if short_groups else []


def check_classes(source: GroupSource, classes: int) -> None:
    """Raise InputError unless the data have so many classes, and labels of several from 0 to classes - 1."""
    collection, split, labels = source.collection, source.split, source.groups.labels
    if collection.classes and len(collection.classes) != classes:
        raise InputError(
            f"method.classes: {classes}, but {collection.directory} has {len(collection.classes)}: "
            f"{', '.join(collection.classes)}: set method.classes={len(collection.classes)}"
        )
    outside = np.flatnonzero((labels < 0) | (labels >= classes) | (labels != np.round(labels)))
    if len(outside):
        raise InputError(
            f"method.classes: {classes}, but split {split} has the label {labels[outside[0]]:g} (query "
            f"{_query_at(source, outside)}): labels must be whole numbers from 0 to {classes - 1}"
        )
    if len(labels) and labels.min() == labels.max():
        raise InputError(
            f"method.loss=classes: every pair of split {split} has the label {labels[0]:g}, so there is nothing to "
            "learn: name a collection with pairs of several classes"
        )


def check_relevance(source: GroupSource, loss: str, *, any_label: bool = False) -> None:
    """Raise InputError where labels are no relevance, or where a loss of every pair would learn one label alone.

    With `any_label`, labels may also be a teacher's scores.
    """
    if not any_label or source.collection.classes:
        try:
            source.collection.require_relevance(source.split)
        except InputError as error:
            raise InputError(f"method.loss={loss}: {error}") from None
    relevant = source.groups.labels > 0
    if source.kind == "pair" and (relevant.all() or not relevant.any()):
        raise InputError(
            f"method.loss={loss}: {'every' if relevant.all() else 'no'} pair of split {source.split} is relevant "
            "(label above 0), so there is nothing to learn: draw negatives (method.negatives_per_query), or name a "
            "collection with pairs of both kinds"
        )


def check_teacher(source: GroupSource, loss: str) -> None:
    """Raise InputError where an example has no second candidate to compare its first one with, or lacks scores."""
    groups, split, problem = source.groups, source.split, ""
    if groups.scores is None and source.kind == "positive":
        problem = f"split {split} has none beside its labels"
    elif len(single_groups := source.used[source.given_others() == 0]):
        raise InputError(
            f"method.loss={loss} compares the candidates of a query, but split {split} gives query "
            f"{source.query_of(single_groups[0])} one only: leave such queries out of the collection"
        )
    elif groups.scores is None and np.isin(groups.labels, (0, 1)).all():  # no teacher gives such ones
        problem = f"all labels of split {split} are 0 or 1"
    elif len(unscored := np.flatnonzero(np.isnan(groups.taught))):
        problem = (
            f"{len(unscored):,} of {len(groups.taught):,} candidates of split {split} have none "
            f"(the first: query {_query_at(source, unscored)})"
        )
    if problem:
        raise InputError(
            f"method.loss={loss} learns a teacher's scores, but {problem}: have a teacher score it (trainer.mine "
            "--score), or name a collection with scores"
        )


def _query_at(source: GroupSource, places: np.ndarray) -> str:
    return source.query_of(group_of(source.groups, places[:1])[0])
