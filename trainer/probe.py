"""Is pre-training working? What the loss does not show, measured on a small labelled collection while the run goes on.

Retrieval: each text's embedding as it is now, without any fine-tuning, ranked by cosine. Geometry: alignment and
uniformity (Wang and Isola, 2020) and the effective rank of the documents' embeddings (Roy and Vetterli, 2007). And, for
methods that read a sequence through one vector (models.task.Bottleneck), what they draw from it: how many nats a target
their loss rises when each sequence is given another's vector. The collection and the texts taken from it are fixed, so
curves of different runs compare; the order of the training data is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from data_prep.collection import Collection
from data_prep.errors import InputError
from models.blocks import pad
from models.task import Bottleneck, MicroBatch, Vocabulary
from trainer.engine import Engine
from trainer.keyed import keyed_rng
from trainer.method_keys import ProbeKeys
from trainer.monitor import Monitor
from trainer.order import LaneBatch
from trainer.retrieval import search

DEPTH = 10
BATCH = 32  # texts encoded at once


@dataclass(frozen=True)
class Probe:
    """Texts with [CLS] and [SEP], queries first; `relevant` are the documents of each query, counted from 0."""

    every: int  # optimizer steps
    rows: list[np.ndarray]
    relevant: list[frozenset[int]]
    max_tokens: int
    pad: int

    def measure(self, engine: Engine, beat: Callable[[], None]) -> dict[str, float]:
        """MRR@10, alignment, uniformity and effective rank of the model as it is; all ranks call and share the work."""
        found = {i: row for share in engine.gather(self.share(engine, beat)) for i, row in share.items()}
        embeddings = np.stack([found[i] for i in range(len(self.rows))])
        queries = len(self.relevant)
        return figures(embeddings[:queries], embeddings[queries:], self.relevant)

    def share(self, engine: Engine, beat: Callable[[], None]) -> dict[int, np.ndarray]:
        """The embeddings of the texts that fall to this rank, by their numbers."""
        order = np.argsort([len(row) for row in self.rows], kind="stable").tolist()
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        mine: dict[int, np.ndarray] = {}
        for first in range(0, len(batches), engine.world.size):
            number = first + engine.world.rank
            # under ZeRO-3 a forward pass takes every rank: one that has nothing left encodes a batch that nobody reads
            batch = batches[number % len(batches)]
            embeddings = engine.embed(*pad([self.rows[i] for i in batch], self.max_tokens, self.pad))
            if number < len(batches):
                mine |= dict(zip(batch, embeddings, strict=True))
            beat()
        return mine


def look(
    probe: Probe | None,
    step: int,
    engine: Engine,
    batches: Sequence[LaneBatch],
    monitor: Monitor,
    beat: Callable[[], None],
) -> None:
    """Before every so many steps, report what the model is worth; `batches` are what it is about to be trained on."""
    if probe is not None and step % probe.every == 0:
        found = probe.measure(engine, beat)
        monitor.probed(step, found | drawn_from_bottleneck(engine, [batch.micro_batch for batch in batches]))


def open_probe(keys: ProbeKeys, fingerprint: str, vocabulary: Vocabulary) -> Probe:
    """The probe that a recipe asks for: judged queries, their relevant documents, and others of the corpus beside them.

    Raises:
        InputError: the collection was tokenised with another tokenizer than the shards, or has too little in it.
    """
    collection = Collection.open(keys.collection)
    if collection.tokenizer.fingerprint != fingerprint:
        raise InputError(
            f"probe.collection: {keys.collection} was tokenised with another tokenizer than the shards: run "
            f"python -m data_prep collection {keys.collection} --tokenizer SHARDS/tokenizer.json"
        )
    corpus, queries = collection.corpus, collection.queries
    judged = {
        query: [corpus.index[document] for document, grade in grades.items() if grade > 0]
        for query, grades in collection.qrels(keys.split).items()
    }
    chosen = [query for query in sorted(judged) if judged[query]]
    chosen = [chosen[i] for i in keyed_rng("probe queries").permutation(len(chosen))[: keys.queries]]
    if not chosen:
        raise InputError(f"probe.split: {keys.split} has no query with a relevant document")
    kept = list(dict.fromkeys(document for query in chosen for document in judged[query]))
    others = keyed_rng("probe documents").permutation(len(corpus)).tolist()
    kept = list(dict.fromkeys([*kept, *others]))[: max(keys.documents, len(kept))]
    # the first of equal scores ranks first: where all texts look alike, that is not to be the relevant one
    kept = [kept[i] for i in keyed_rng("probe order").permutation(len(kept))]
    place = {document: i for i, document in enumerate(kept)}
    texts = [queries.tokens(queries.index[query]) for query in chosen] + [corpus.tokens(i) for i in kept]
    cls, sep = [vocabulary.cls], [vocabulary.sep]
    rows = [np.concatenate([cls, text[: keys.max_tokens - 2], sep], dtype=np.int64) for text in texts]
    relevant = [frozenset(place[document] for document in judged[query]) for query in chosen]
    return Probe(keys.every, rows, relevant, keys.max_tokens, vocabulary.pad)


def figures(queries: np.ndarray, documents: np.ndarray, relevant: Sequence[frozenset[int]]) -> dict[str, float]:
    """What embeddings fp32 [Q, H] and [N, H] are worth, by name.

    alignment: the mean squared distance of a query and its relevant documents on the unit sphere, 0 at best.
    uniformity: log of the mean of exp(-2 d^2) over pairs of documents, lower is more even; 0 where all are one point.
    effective_rank: exp of the entropy of the documents' singular values, from 1 to H.
    """
    queries, documents = _unit(queries), _unit(documents)
    ranking = search(queries, documents, DEPTH).documents
    first = [
        next((rank for rank, document in enumerate(row, 1) if document in wanted), None)
        for row, wanted in zip(ranking.tolist(), relevant, strict=True)
    ]
    pairs = np.array([(q, d) for q, wanted in enumerate(relevant) for d in sorted(wanted)])
    gaps = ((queries[pairs[:, 0]] - documents[pairs[:, 1]]) ** 2).sum(1)
    products = documents @ documents.T
    distances = np.maximum(2 - 2 * products[np.triu_indices(len(documents), 1)], 0)
    spread = np.linalg.svd(documents, compute_uv=False)
    shares = spread / max(spread.sum(), 1e-12)
    return {
        "mrr@10": float(np.mean([0.0 if rank is None else 1 / rank for rank in first])),
        "alignment": float(gaps.mean()),
        "uniformity": float(np.log(np.exp(-2 * distances).mean())) if len(distances) else 0.0,
        "effective_rank": float(np.exp(-(shares * np.log(np.maximum(shares, 1e-12))).sum())),
    }


def drawn_from_bottleneck(engine: Engine, batches: Sequence[MicroBatch]) -> dict[str, float]:
    """For a model with a bottleneck, by how many nats a target each of its terms rises with another sequence's vector.

    `batches` are this rank's share of data that the model has not been trained on yet; all ranks call. A micro-batch of
    one sequence has no other and tells 0.
    """
    model = engine.model
    if not isinstance(model, Bottleneck):
        return {}
    terms = list(engine.weights)
    rises = torch.zeros(2, len(terms), dtype=torch.float64)  # nats, targets
    for batch in batches:
        rises[0] += (engine.evaluate(batch, swap=True) - engine.evaluate(batch)).double().cpu()
        rises[1] += torch.tensor([float(batch.counts[term]) for term in terms], dtype=torch.float64)
    nats, targets = engine.sum_over_ranks(rises).tolist()
    return {
        f"bottleneck/{term}": nats[i] / max(1.0, targets[i])
        for i, term in enumerate(terms)
        if term in model.bottleneck_terms
    }


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays one."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
