"""The part of a split that a probe ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.system import in_pool_order
from deepsiam.trainer.training.recipe.schema import ProbeConfig


def sample(collection: Collection, keys: ProbeConfig) -> Task:
    """Draw queries of a split and a part of its pool, the same for every run: judged, mined and random documents.

    The pool has all documents that are relevant to one of the queries. Half of the other places are for documents that
    the split names for the queries, judged or mined, in their order and as many for each; the rest are drawn.

    Raises:
        InputError: the collection has no such split, or no document of its pool is relevant to a query.
    """
    try:
        names, qrels, pool = collection.corpus.ids, collection.qrels(keys.split), np.sort(collection.pool(keys.split))
    except InputError as error:
        raise InputError(f"probe.split: {error}") from None
    relevant, others = {}, {}
    for query, grades in qrels.items():
        documents = names.find([*grades])
        judged = zip(documents.tolist(), grades.values(), np.isin(documents, pool).tolist(), strict=True)
        found = [(document, grade) for document, grade, inside in judged if inside]
        relevant[query] = [document for document, grade in found if grade > 0]
        others[query] = [document for document, grade in found if grade <= 0]
    able = sorted(query for query in qrels if relevant[query])
    if not able:
        raise InputError(
            f"probe.split: {keys.split} of {collection.directory} has no query with a relevant document in its pool: "
            "name another split"
        )
    chosen = {able[i] for i in keyed_rng("probe queries").permutation(len(able))[: keys.queries]}
    qrels = {query: grades for query, grades in qrels.items() if query in chosen}
    kept = dict.fromkeys(document for query in qrels for document in relevant[query])
    named = dict.fromkeys(document for document in _in_turn(others[query] for query in qrels) if document not in kept)
    kept |= dict.fromkeys([*named][: max(0, keys.documents - len(kept)) // 2])
    order = keyed_rng("probe documents").permutation(len(pool))[: keys.documents + len(kept)]
    drawn = [document for document in pool[order].tolist() if document not in kept]
    kept |= dict.fromkeys(drawn[: max(0, keys.documents - len(kept))])
    ranked = in_pool_order(np.array([*kept])).tolist()
    return Task.over(collection, keys.split, qrels, ranked)


def relevant_places(task: Task) -> list[frozenset[int]]:
    """Return the positions in the pool of the documents that are relevant to each query."""
    place = {document: at for at, document in enumerate(task.pool)}
    names = task.collection.corpus.ids
    found = (names.find([name for name, grade in grades.items() if grade > 0]) for grades in task.qrels.values())
    return [frozenset(place[i] for i in documents.tolist() if i in place) for documents in found]


def _in_turn(lists: Iterator[list[int]]) -> Iterator[int]:
    """Yield the first of each list, then the second of each."""
    for of_turn in zip_longest(*lists):
        yield from (document for document in of_turn if document is not None)
