"""A step of few texts, with GradCache on simulated ranks (threads that exchange tensors), and in one graph."""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from deepsiam.models.batching.candidates import Example
from deepsiam.models.encode import encode
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from deepsiam.models.matching.siamese import Siamese
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.training.engine import grad_cache
from tests.models.matching.examples import Corpus, micro_batch, positive, siamese
from tests.models.tiny import tensors, trunk

DROPOUT = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
# documents 10 and 11 are copies of 0 and 1; texts of a micro-batch are padded to 8 or 12 tokens, as its longest needs
EXAMPLES = [
    positive(0, 1),
    positive(1, query=(7, 30)),
    positive(10, query=(31, 8)),
    positive(2, 0, query=(6, 30, 12)),
    positive(9, query=(9, 9)),
    positive(7, 11, query=(30, 13)),
    positive(1, 3, query=(14,)),
    positive(8, query=(5, 31, 20, 21)),
]
COUNT = len(EXAMPLES)
Gradients = dict[str, Tensor]
Result = TypeVar("Result")


class EveryToken(DualEncoder):
    """A text has a vector for every token; a score sums each query token's best match among the document's tokens."""

    index = "multi_vector"

    def embed_queries(self, ids: Tensor, mask: Tensor) -> Vectors:
        return Vectors(encode(self.trunk, ids, mask), mask)

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        return self.embed_queries(ids, mask)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        products = torch.einsum("qmh,dnh->qdmn", queries.vectors, documents.vectors)
        best = products.masked_fill(~documents.mask[None, :, None], -torch.inf).amax(dim=3)
        return (best * queries.mask[:, None]).sum(dim=2)


MODELS: dict[str, Callable[..., DualEncoder]] = {
    "one vector": lambda **config: Siamese(trunk(**config), KEYS).double(),
    "every token": lambda **config: EveryToken(trunk(**config), KEYS).double(),
}
KEYS = siamese(
    negatives="step",
    negatives_per_query=1,
    pooling="mean",
    similarity="cosine",
    temperature=0.2,
    learn_temperature=True,
)


SPARSE = SparseConfig.model_validate(
    {
        "name": "sparse",
        "negatives": "own",
        "negatives_per_query": 1,
        "regularise": {"query": {"l1": 0.05}, "document": {"flops": 0.3}},
        "max_query_tokens": 6,
        "max_document_tokens": 12,
    }
)
SIDES = ("query", "document")
TARGETS = {"document_flops": 2 * COUNT}  # of all other terms COUNT


class Ranks:
    """The part of torch.distributed that GradCache uses, between threads: one thread per rank."""

    def __init__(self, size: int) -> None:
        self.size, self.of_thread = size, threading.local()
        self.barrier, self.given = threading.Barrier(size), [torch.empty(0)] * size

    def run(self, work: Callable[[int], Result]) -> list[Result]:
        """Call `work` with the number of each rank, all in parallel."""

        def of_rank(rank: int) -> Result:
            self.of_thread.rank = rank
            try:
                return work(rank)
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as threads:
            return list(threads.map(of_rank, range(self.size)))

    def get_rank(self) -> int:
        return self.of_thread.rank

    def get_world_size(self) -> int:
        return self.size

    def all_gather(self, out: list[Tensor], own: Tensor) -> None:
        for place, given in zip(out, self._exchange(own), strict=True):
            assert place.shape == given.shape
            place.copy_(given)

    def all_reduce(self, own: Tensor) -> None:
        own.copy_(torch.stack(self._exchange(own)).sum(dim=0))

    def _exchange(self, own: Tensor) -> list[Tensor]:
        self.given[self.get_rank()] = own.clone()
        self.barrier.wait()
        given = list(self.given)
        self.barrier.wait()
        return given


def micro_batches(
    size: int, examples: Sequence[Example] = EXAMPLES, keys: DualEncoderConfig = KEYS
) -> list[dict[str, Tensor]]:
    """The micro-batches of the step; an example has the same sampled negative for every micro-batch size."""
    starts = range(0, len(examples), size)
    return [tensors(micro_batch(keys, examples[start : start + size], start=start)) for start in starts]


def in_one_graph(model: DualEncoder, batches: Sequence[dict[str, Tensor]]) -> tuple[list[float], Gradients]:
    """Compute the loss of each micro-batch and the gradient of the mean loss, in loops over queries and documents."""
    encoded = []
    for seed, batch in enumerate(batches):
        torch.manual_seed(seed)
        encoded.append(model(**batch, represent=True))
    losses, example = [], 0
    for batch, texts in zip(batches, encoded, strict=True):
        loss = torch.zeros(())
        for row, column in enumerate(batch["candidates"][:, 0].tolist()):
            query = Vectors(texts["query_vectors"][row, None], texts["query_real"][row, None])
            relevant = {tuple(Corpus().tokens(int(i)).tolist()) for i in EXAMPLES[example].relevant}
            scores, positive_score = [], torch.zeros(())
            for other, documents in zip(batches, encoded, strict=True):
                among = model.score(query, Vectors(documents["document_vectors"], documents["document_real"]))[0]
                for i, score in enumerate(among):
                    text = tuple(other["document_ids"][i][other["document_mask"][i]][1:-1].tolist())
                    if other is batch and i == column:
                        positive_score = score
                    elif text not in relevant:
                        scores.append(score)
            loss = loss + torch.logsumexp(torch.stack([positive_score, *scores]), 0) - positive_score
            example += 1
        losses.append(loss)
    (torch.stack(losses).sum() / COUNT).backward()
    return [loss.item() for loss in losses], gradients_of([model])


def accumulate(
    model: DualEncoder,
    batches: Sequence[dict[str, Tensor]],
    encode: Sequence[Callable[[], dict[str, Tensor]]],
    weights: Mapping[str, float] | None = None,
) -> list[float]:
    """Add the gradient of a rank's micro-batches to its model; return their losses, each the weighted sum of terms."""

    def weighted(sums: Mapping[str, Tensor]) -> Tensor:
        terms = (weights or model.keys.weights).items()
        return torch.stack([weight * sums[term] * COUNT / TARGETS.get(term, COUNT) for term, weight in terms]).sum()

    losses = []
    for sums, objective in grad_cache.objectives(model, batches, encode, lambda sums: weighted(sums) / COUNT):
        assert not any(loss.requires_grad for loss in sums.values())
        losses.append(float(weighted(sums)))
        objective.backward()
    return losses


def cached(
    model: DualEncoder,
    batches: Sequence[dict[str, Tensor]],
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
    weights: Mapping[str, float] | None = None,
) -> tuple[list[float], Gradients]:
    """Compute the same with GradCache: micro-batch i is micro-batch i // ranks of rank i % ranks."""
    world, lock = Ranks(ranks), threading.Lock()
    monkeypatch.setattr(grad_cache, "dist", world)
    models = [copy.deepcopy(model) for _ in range(ranks)]

    def encode_one(model: DualEncoder, number: int) -> dict[str, Tensor]:
        with lock:  # dropout uses the process-wide generator
            torch.manual_seed(number)
            return model(**batches[number], represent=True)

    def train(rank: int) -> list[float]:
        encode = [partial(encode_one, models[rank], i) for i in range(rank, len(batches), ranks)]
        return accumulate(models[rank], batches[rank::ranks], encode, weights)

    losses = world.run(train)
    return [losses[i % ranks][i // ranks] for i in range(len(batches))], gradients_of(models)


def gradients_of(models: Sequence[DualEncoder]) -> Gradients:
    """The gradients by name, summed over the ranks."""
    named = [dict(model.named_parameters()) for model in models]
    return {
        name: torch.stack([parameters[name].grad for parameters in named]).sum(dim=0)
        for name, parameter in named[0].items()
        if parameter.grad is not None
    }


def compare(ours: tuple[list[float], Gradients], expected: tuple[list[float], Gradients], tolerance: float) -> None:
    assert ours[0] == pytest.approx(expected[0], rel=tolerance)
    assert ours[1].keys() == expected[1].keys() >= {"log_temperature"}
    largest = max(float(gradient.abs().max()) for gradient in expected[1].values())
    for name, gradient in expected[1].items():
        torch.testing.assert_close(ours[1][name], gradient, rtol=tolerance, atol=tolerance * largest)
