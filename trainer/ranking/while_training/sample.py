"""The part of a split that a probe ranks."""

from __future__ import annotations

from itertools import chain, zip_longest

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
    relevant, negatives = {}, {}
    for query, grades in qrels.items():
        numbers = names.find([*grades])
        judged = zip(numbers.tolist(), grades.values(), np.isin(numbers, pool).tolist(), strict=True)
        in_pool = [(document, grade) for document, grade, inside in judged if inside]
        relevant[query] = [document for document, grade in in_pool if grade > 0]
        negatives[query] = [document for document, grade in in_pool if grade <= 0]
    usable = sorted(query for query in qrels if relevant[query])
    if not usable:
        raise InputError(
            f"probe.split: {keys.split} of {collection.directory} has no query with a relevant document in its pool: "
            "name another split"
        )
    sampled_queries = {usable[i] for i in keyed_rng("probe queries").permutation(len(usable))[: keys.queries]}
    qrels = {query: grades for query, grades in qrels.items() if query in sampled_queries}
    documents = dict.fromkeys(document for query in qrels for document in relevant[query])
    turns = chain.from_iterable(
        zip_longest(*(negatives[query] for query in qrels))
    )  # the first of each, the second, ...
    candidates = dict.fromkeys(document for document in turns if document is not None and document not in documents)
    documents |= dict.fromkeys([*candidates][: max(0, keys.documents - len(documents)) // 2])
    order = keyed_rng("probe documents").permutation(len(pool))[: keys.documents + len(documents)]
    random = [document for document in pool[order].tolist() if document not in documents]
    documents |= dict.fromkeys(random[: max(0, keys.documents - len(documents))])
    pool = in_pool_order(np.array([*documents])).tolist()
    return Task.of(collection, keys.split, qrels=qrels, pool=pool)


def relevant_places(task: Task) -> list[frozenset[int]]:
    """Return the positions in the pool of the documents that are relevant to each query."""
    place = {document: at for at, document in enumerate(task.pool)}
    names = task.collection.corpus.ids
    relevant = (names.find([name for name, grade in grades.items() if grade > 0]) for grades in task.qrels.values())
    return [frozenset(place[i] for i in documents.tolist() if i in place) for documents in relevant]
