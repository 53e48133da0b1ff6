"""Is pre-training working? Measure what the loss does not show, on a small labelled collection, during the run.

Retrieval: documents ranked by the cosine of the current embeddings, without fine-tuning. Geometry: alignment and
uniformity (Wang and Isola, 2020), and the effective rank of the documents' embeddings (Roy and Vetterli, 2007). For
methods that read a sequence through one vector (models.interface.Bottleneck), also how much they use it: by how many
nats per target their loss rises when each sequence gets another sequence's vector. The texts are fixed, so curves of
different runs can be compared; the probe does not change the order of the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from deepsiam.data_prep.collections.collection import Collection, remedy
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.batching.packing import frame, pad
from deepsiam.models.interface import Bottleneck, MicroBatch
from deepsiam.trainer.ranking.retrieval.encode import length_batches
from deepsiam.trainer.ranking.retrieval.search import search
from deepsiam.trainer.ranking.retrieval.shared import compute_my_batches, shared_by
from deepsiam.trainer.ranking.while_training.sample import relevant_places, sample
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.recipe.schema import ShardProbeConfig

DEPTH = 10
ROWS = 128  # of documents whose products are taken at once
BATCH = 32  # texts of full length in one forward pass


@dataclass(frozen=True)
class PretrainingProbe:
    """Texts as token ids with [CLS] and [SEP], queries before documents."""

    every: int  # optimizer steps
    rows: list[np.ndarray]
    relevant: list[frozenset[int]]  # the relevant documents of each query, counted from 0
    left_out: Mapping[int, np.ndarray]  # the documents that a query does not rank, such as itself
    max_tokens: int
    pad: int

    @property
    def about(self) -> str:
        """The number of texts."""
        return f"{len(self.relevant)} queries, {len(self.rows) - len(self.relevant)} documents"

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether to measure before a step: after the last one there is no data that the model has not seen."""
        return step % self.every == 0 and step < steps

    def measure(
        self, engine: Engine, micro_batches: Sequence[MicroBatch], beat: Callable[[], None]
    ) -> dict[str, float]:
        """Measure the current model; all ranks call and share the work; `beat` is called after each batch.

        `micro_batches` are this rank's share of data that the model has not been trained on yet.
        """
        embeddings, queries = self.embeddings(engine, beat), len(self.relevant)
        retrieval = figures(embeddings[:queries], embeddings[queries:], self.relevant, self.left_out)
        return retrieval | bottleneck_rises(engine, micro_batches)

    def embeddings(self, engine: Engine, beat: Callable[[], None]) -> np.ndarray:
        """Embed the texts, fp32 [N, H]; all ranks call and share the work."""

        def embed(batch: list[int]) -> np.ndarray:
            return engine.embed(*pad([self.rows[i] for i in batch], self.max_tokens, self.pad))

        batches = length_batches(list(map(len, self.rows)), BATCH * self.max_tokens)
        embeddings: dict[int, np.ndarray] = {}
        with shared_by(engine.world.rank, engine.world.size, beat):
            for batch, rows in compute_my_batches(batches, embed):
                embeddings |= dict(zip(batch, rows, strict=True))
        return np.stack([embeddings[i] for i in range(len(self.rows))])


def open_probe(keys: ShardProbeConfig, tokenizer: Tokenizer) -> PretrainingProbe:
    """Open the probe of a recipe: judged queries, their relevant documents, and other documents of the corpus.

    Raises:
        InputError: the collection and the shards were tokenised with different tokenizers, or the split has no query
            with a relevant document.
    """
    collection = Collection.open(keys.collection)
    require_same_tokenizer(
        tokenizer,
        "the shards",
        collection.tokenizer.fingerprint,
        f"probe.collection: {keys.collection}",
        remedy(keys.collection, tokenizer.path),
    )
    task = sample(collection, keys)
    rows = [frame(text, tokenizer, keys.max_tokens) for text in (*task.query_tokens(), *task.pool_tokens())]
    return PretrainingProbe(keys.every, rows, relevant_places(task), task.left_out, keys.max_tokens, tokenizer.pad)


def figures(
    queries: np.ndarray,
    documents: np.ndarray,
    relevant: Sequence[frozenset[int]],
    left_out: Mapping[int, np.ndarray] = MappingProxyType({}),
) -> dict[str, float]:
    """Compute figures, by name, from embeddings fp32 [Q, H] of queries and [N, H] of documents.

    mrr@10: the mean reciprocal rank of the first relevant document among the first 10, without a query's `left_out`.
    alignment: the mean squared distance of a query and its relevant documents on the unit sphere, 0 at best.
    uniformity: log of the mean of exp(-2 d^2) over pairs of documents; lower is more even, 0 if all are equal.
    effective_rank: exp of the entropy of the documents' normalised singular values, from 1 to H.
    """
    queries, documents = _unit(queries), _unit(documents)
    ranking = search(queries, documents, DEPTH + max(map(len, left_out.values()), default=0)).documents
    ranked = [row[~np.isin(row, left_out.get(i, ()))][:DEPTH].tolist() for i, row in enumerate(ranking)]
    first_relevant = [
        next((rank for rank, document in enumerate(row, 1) if document in answers), None)
        for row, answers in zip(ranked, relevant, strict=True)
    ]
    pairs = np.array([(query, d) for query, answers in enumerate(relevant) for d in sorted(answers)])
    gaps = ((queries[pairs[:, 0]] - documents[pairs[:, 1]]) ** 2).sum(1)
    spread = np.linalg.svd(documents, compute_uv=False)
    shares = spread / max(spread.sum(), 1e-12)
    return {
        "mrr@10": float(np.mean([0.0 if rank is None else 1 / rank for rank in first_relevant])),
        "alignment": float(gaps.mean()),
        "uniformity": _uniformity(documents),
        "effective_rank": float(np.exp(-(shares * np.log(np.maximum(shares, 1e-12))).sum())),
    }


def _uniformity(documents: np.ndarray) -> float:
    """Return the uniformity of vectors of length 1, [N, H], in blocks of rows: their pairs may need much memory."""
    total, pairs = 0.0, len(documents) * (len(documents) - 1) // 2
    for start in range(0, len(documents), ROWS):
        products = documents[start : start + ROWS] @ documents[start:].T
        later = np.triu_indices(len(products), 1, products.shape[1])
        total += np.exp(-2 * np.maximum(2 - 2 * products[later], 0)).sum(dtype=np.float64)
    return float(np.log(total / pairs)) if pairs else 0.0


def bottleneck_rises(engine: Engine, micro_batches: Sequence[MicroBatch]) -> dict[str, float]:
    """Return each bottleneck term's rise in nats per target with another sequence's vector; empty for other models.

    `micro_batches` are this rank's; all ranks call. A micro-batch of one sequence counts as a rise of 0.
    """
    model = engine.model
    if not isinstance(model, Bottleneck):
        return {}
    terms = engine.terms
    rises = torch.zeros(2, len(terms), dtype=torch.float64)  # nats, targets
    for batch in micro_batches:
        rises[0] += (engine.evaluate(batch, swap=True) - engine.evaluate(batch)).double().cpu()
        rises[1] += torch.tensor([float(batch.counts[term]) for term in terms], dtype=torch.float64)
    nats, targets = engine.sum_over_ranks(rises).tolist()
    return {
        f"bottleneck/{term}": nats[i] / max(1.0, targets[i])
        for i, term in enumerate(terms)
        if term in model.bottleneck_terms
    }


def _unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; a row of zeros stays zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
