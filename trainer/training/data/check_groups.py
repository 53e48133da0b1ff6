"""Check before the first step that a split of a collection gives a method what it learns from.

open_pairs.py calls this for each source that it opens, and for each held-out split.
"""

from __future__ import annotations

import numpy as np

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
        source.check_teacher(" and ".join(method.taught))
    if method.candidates:
        remarks += _check_candidates(method.candidates.per_query, source)
    if getattr(method, "query", "") == "tokens":
        remarks += _check_queries(method, source)
    if isinstance(classes := getattr(method, "classes", None), int):
        source.check_classes(classes)
    else:
        taught_alone = len(method.taught) == len(method.losses)
        source.check_relevance(" and ".join(method.losses), any_label=taught_alone)
    return remarks


def check_copies(method: MatchingConfig, source: GroupSource, candidates: Candidates) -> None:
    """Raise InputError where copies of a query's relevant documents leave too few negatives to draw."""
    if not 0 <= source.negatives - method.own_negatives < MOST_COPIES:
        return  # refused by `check_groups`, given by the groups themselves, or enough whatever the copies are
    texts, copies = np.unique(candidates.keys(candidates.pool), return_counts=True)
    number_of = dict(zip(texts.tolist(), copies.tolist(), strict=True))
    for query in np.unique(source.groups.queries[source.used]).tolist():
        tokens, relevant = source.collection.queries.tokens(query), source.relevant.never_negative(query)
        excluded = np.unique(candidates.never_negative(tokens, relevant)).tolist()
        left = len(candidates.pool) - sum(number_of.get(text, 0) for text in excluded)
        if left < method.own_negatives:
            raise InputError(
                f"method.negatives_per_query + method.hard_negatives: {method.own_negatives}, but split {source.split} "
                f"has only {left} documents with another text than those relevant to query "
                f"{source.collection.queries.called(query)}: set {left} or less"
            )


def _check_queries(method: MatchingConfig, source: GroupSource) -> list[str]:
    """Return a remark if some queries have no tokens that count; raise InputError if no query has any."""
    queries, framing = source.collection.queries, method.query_framing(source.collection.tokenizer)
    numbers = np.unique(source.groups.queries[source.used]).tolist()
    empty = [i for i in numbers if not len(framing.cut(queries.tokens(i)))]
    if len(empty) == len(numbers):
        raise InputError(f"method.query=tokens: the queries of split {source.split} are stop words alone: set encoder")
    if not empty:
        return []
    return [
        f"split {source.split}: {len(empty):,} of {len(numbers):,} queries are stop words alone, such as "
        f"{queries.called(empty[0])}: all documents score 0 for them"
    ]


def _check_hard_negatives(method: MatchingConfig, source: GroupSource, mined: bool) -> list[str]:
    """Return a remark if some groups have fewer negatives than requested, so that the rest are drawn at random.

    Raise InputError if no group has enough negatives, or too few other documents are left to draw from.
    """
    wanted, given = method.hard_negatives, source.given_negatives()
    too_few_others = wanted - given.min() + method.negatives_per_query > source.negatives
    none_has_enough = wanted > given.max() and not mined
    if none_has_enough or (wanted > given.min() and too_few_others):
        at = given.argmax() if none_has_enough else given.argmin()
        query, number = source.query_of(source.used[at]), given[at]
        fewer = f"set {number} or less" if number else "mine some (trainer.mine)"
        raise InputError(
            f"method.hard_negatives: {wanted}, but split {source.split} gives query {query} only "
            f"{number}: {fewer}, or draw some at random (method.negatives_per_query)"
        )
    return _fewer(source, given, "method.hard_negatives", wanted, "the others are drawn at random")


def _check_candidates(wanted: int, source: GroupSource) -> list[str]:
    """Return a remark if some groups have fewer candidates than are drawn; raise InputError if all have."""
    given = 1 + source.given_others()
    if wanted > (most := given.max()):
        raise InputError(
            f"method.candidates.per_query: {wanted}, but split {source.split} gives no query more than {most} "
            f"candidates: set {most} or less"
        )
    return _fewer(source, given, "method.candidates.per_query", wanted, "all of theirs are used")


def _fewer(source: GroupSource, given: np.ndarray, key: str, wanted: int, then: str) -> list[str]:
    """Return a remark if some groups, which give `given` documents each, give fewer than wanted."""
    few = int((given < wanted).sum())
    remark = f"split {source.split}: {few:,} of {len(given):,} groups give fewer than {key}={wanted}: {then}"
    return [remark] if few else []
