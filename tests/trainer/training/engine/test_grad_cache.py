"""GradCache against one graph of the whole step, on simulated ranks: threads that exchange tensors."""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from models.batching.candidates import Example
from models.encode import encode
from models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from models.matching.siamese import Siamese
from models.matching.sparse import SparseConfig
from models.pretraining.pairs import PairsConfig
from models.recomputing import recompute_layers
from models.vectors import Vectors
from tests.models.matching.examples import Corpus, micro_batch, positive, siamese
from tests.models.tiny import VOCABULARY, Text, rngs, tensors, trunk
from trainer.training.engine import grad_cache

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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("ranks", "size"), [(1, 8), (1, 4), (1, 1), (2, 4), (2, 2), (4, 2), (4, 1), (8, 1)])
def test_any_split_gives_the_loss_and_the_gradient_of_one_batch(
    monkeypatch: pytest.MonkeyPatch, name: str, ranks: int, size: int
) -> None:
    model, (whole,) = MODELS[name](), micro_batches(COUNT)
    losses, gradients = in_one_graph(copy.deepcopy(model), [whole])
    ours = cached(model, micro_batches(size), ranks, monkeypatch)
    compare(([sum(ours[0])], ours[1]), (losses, gradients), 1e-9)


@pytest.mark.parametrize(("ranks", "size"), [(1, 8), (1, 2), (2, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("way", [{}, {"both_directions": True}, {"same_side": True, "both_directions": True}], ids=str)
def test_streamed_pairs_are_compared_with_those_of_the_whole_step(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, bool], ranks: int, size: int
) -> None:
    """Pairs of one group and pairs of one text are in different micro-batches."""
    texts = [(30, 5), (31, 6), (30, 7), (32, 8), (33, 5), (34, 9), (35, 10), (36, 36)]
    groups = ["a", "b", "c", "d", "e", "b", "f", "g"]
    pairs = [Text([np.array([q, q]), np.array([d, 12, d])], group=g) for (q, d), g in zip(texts, groups, strict=True)]

    def batches(negatives: str, size: int) -> tuple[DualEncoder, Mapping[str, float], list[dict[str, Tensor]]]:
        keys = PairsConfig(name="pairs", negatives=negatives, similarity="cosine", temperature=0.2, **way)
        batcher = keys.batcher(VOCABULARY)
        examples = batcher.examples(pairs)
        parts = [examples[start : start + size] for start in range(0, COUNT, size)]
        made = [tensors(batcher.micro_batch(part, rngs(len(part)))) for part in parts]
        return keys.model(trunk()).double(), keys.weights, made

    whole, weights, (batch,) = batches("micro_batch", COUNT)
    total = sum(weights[term] * loss for term, loss in whole(**batch).items())
    (total / COUNT).backward()
    model, weights, of_step = batches("step", size)
    losses, gradients = cached(model, of_step, ranks, monkeypatch, weights)
    same_step((losses, gradients), ([total.item()], gradients_of([whole])))


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("dimensions", [{}, {"dimensions": [12, 4]}], ids=str)
def test_the_same_documents_are_ignored_for_any_split(
    monkeypatch: pytest.MonkeyPatch, dimensions: dict[str, list[int]], ranks: int, size: int
) -> None:
    shape = {"pooling": "mean", "similarity": "cosine", "temperature": 0.2, "hard_negatives": 1, **dimensions}
    keys = siamese(negatives="step", ignore_above=0.02, **shape)
    examples = [replace(e, candidates=np.append(e.candidates, 3 + i % 3)) for i, e in enumerate(EXAMPLES)]
    examples = [replace(e, labels=np.array([1, 0], np.float32)) for e in examples]
    model, (whole,) = Siamese(trunk(), keys).double(), micro_batches(COUNT, examples, keys)
    all_of_it = copy.deepcopy(model)
    sums = all_of_it(**whole)
    assert set(sums) == set(keys.weights)
    assert all(0 < float(value) < COUNT for term, value in sums.items() if term.startswith("ignored"))
    (sum(weight * sums[term] for term, weight in keys.weights.items()) / COUNT).backward()
    losses, gradients = cached(model, micro_batches(size, examples, keys), ranks, monkeypatch)
    expected = sum(weight * float(sums[term]) for term, weight in keys.weights.items())
    assert sum(losses) == pytest.approx(expected, rel=1e-9)
    for name, gradient in gradients_of([all_of_it]).items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (2, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("dimensions", [{}, {"dimensions": [12, 4]}], ids=str)
def test_several_losses_are_those_of_one_batch(
    monkeypatch: pytest.MonkeyPatch, dimensions: dict[str, list[int]], ranks: int, size: int
) -> None:
    """The softmax is over the documents of the step, the others over each query's own scored candidates."""
    table = {"softmax": 1.0, "kl": 0.5, "margin_mse": 0.05}
    shape = {"pooling": "mean", "similarity": "cosine", "temperature": 0.2, "learn_temperature": True, **dimensions}
    keys = siamese(loss=table, negatives="step", candidates={"per_query": 3}, teacher_scale="min_max", **shape)
    rng, model = np.random.default_rng(0), Siamese(trunk(), keys).double()
    given = [(2, 3, 4), (5, 6), (7, 3, 5), (8, 9, 4), (3,), (2, 4, 5), (0, 6, 9), (0, 1, 2)]
    examples = []
    for example, others in zip(EXAMPLES, given, strict=True):
        scores = rng.normal(0, 2, 1 + len(others)).astype(np.float32)
        candidates, labels = np.array([example.candidates[0], *others]), np.zeros_like(scores)
        examples.append(replace(example, candidates=candidates, labels=labels, scores=scores))
    batches = [
        tensors(micro_batch(keys, examples[start : start + size], start=start)) for start in range(0, COUNT, size)
    ]
    whole = copy.deepcopy(model)
    sums = whole(**tensors(micro_batch(keys, examples)))
    total = sum(weight * sums[term] for term, weight in keys.weights.items())
    (total / COUNT).backward()
    losses, gradients = cached(model, batches, ranks, monkeypatch)
    compare(([sum(losses)], gradients), ([total.item()], gradients_of([whole])), 1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_dropout_is_that_of_each_micro_batch_for_any_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, name: str, ranks: int
) -> None:
    model, batches = MODELS[name](**DROPOUT), micro_batches(2)
    expected = in_one_graph(copy.deepcopy(model), batches)
    compare(cached(model, batches, ranks, monkeypatch), expected, 1e-9)
    without, _ = in_one_graph(copy.deepcopy(model).eval(), batches)
    assert without != pytest.approx(expected[0], rel=0.01)


def regularised(model: DualEncoder, batches: Sequence[dict[str, Tensor]]) -> tuple[list[float], Gradients]:
    """Compute the objective of a step in one graph, by the definitions of softmax over own documents, L1 and FLOPS."""
    encoded = []
    for seed, batch in enumerate(batches):
        torch.manual_seed(seed)
        encoded.append(model(**batch, represent=True))
    softmax = []
    for batch, texts in zip(batches, encoded, strict=True):
        scores = texts["query_vectors"][:, 0] @ texts["document_vectors"][:, 0].T
        softmax += [-scores[i, row].log_softmax(0)[0] for i, row in enumerate(batch["candidates"])]
    queries, documents = (torch.cat([texts[f"{side}_vectors"][:, 0] for texts in encoded]) for side in SIDES)
    l1, flops = queries.sum() / len(queries), (documents.mean(dim=0) ** 2).sum()
    objective = torch.stack(softmax).mean() + 0.05 * l1 + 0.3 * flops
    objective.backward()
    return [COUNT * objective.item()], gradients_of([model])


def same_step(ours: tuple[list[float], Gradients], expected: tuple[list[float], Gradients]) -> None:
    assert sum(ours[0]) == pytest.approx(sum(expected[0]), rel=1e-9)
    assert ours[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(ours[1][name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("ranks", "size"), [(1, 8), (1, 2), (1, 1), (2, 4), (2, 1), (4, 2), (4, 1)])
def test_regularisers_are_those_of_the_whole_step(monkeypatch: pytest.MonkeyPatch, ranks: int, size: int) -> None:
    model, batches = SPARSE.model(trunk(**DROPOUT)).double(), micro_batches(size, keys=SPARSE)
    same_step(cached(model, batches, ranks, monkeypatch), regularised(copy.deepcopy(model), batches))


def test_step_negatives_and_regularisers_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SPARSE.model_copy(update={"negatives": "step"})
    model = keys.model(trunk()).double()
    whole = cached(model, micro_batches(COUNT, keys=keys), 1, monkeypatch)
    for ranks, size in ((1, 2), (2, 2), (4, 1)):
        same_step(cached(model, micro_batches(size, keys=keys), ranks, monkeypatch), whole)


def test_dropout_is_repeated_where_activations_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["one vector"](**DROPOUT)
    expected = in_one_graph(copy.deepcopy(model), micro_batches(2))
    recompute_layers(model)
    compare(cached(model, micro_batches(2), 1, monkeypatch), expected, 1e-9)


def test_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["one vector"](**DROPOUT).float()
    expected = in_one_graph(copy.deepcopy(model), micro_batches(2))
    compare(cached(model, micro_batches(2), 2, monkeypatch), expected, 1e-5)


def test_the_documents_are_those_of_all_micro_batches_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches of 1, 2 and 3 documents with at most 3, 1 and 2 vectors; the fourth has only padding."""
    shapes = [(1, 3), (2, 1), (3, 2), (1, 1)]
    texts = [
        {
            "document_vectors": torch.full((count, width, 2), float(i)),
            "document_real": torch.arange(width).expand(count, -1) < (i != 3),
        }
        for i, (count, width) in enumerate(shapes)
    ]
    keys = [torch.arange(10 * i, 10 * i + count) for i, (count, _) in enumerate(shapes)]
    for size in (1, 2, 4):
        ranks = Ranks(size)
        monkeypatch.setattr(grad_cache, "dist", ranks)
        gathered = ranks.run(lambda rank, size=size: grad_cache.gather(texts[rank::size], keys[rank::size]))
        for rank, documents in enumerate(gathered):
            assert documents.vectors.shape == (7, 3, 2)
            assert documents.keys.tolist() == [0, 10, 11, 20, 21, 22, 30]
            assert documents.vectors[:, 0, 0].tolist() == [0, 1, 1, 2, 2, 2, 3]
            assert documents.mask.tolist() == [[True, False, False]] * 6 + [[False] * 3]
            assert documents.own == [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 7)][rank::size]


def test_a_copy_of_a_relevant_document_is_no_negative_in_any_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query's loss does not change if another micro-batch has a copy of its document."""
    keys = siamese(negatives="step", similarity="cosine")
    model = Siamese(trunk(), keys).double()

    def losses(*documents: int) -> list[float]:
        batches = [tensors(micro_batch(keys, [positive(i, query=(30, i + 5))])) for i in documents]
        return cached(model, batches, 2, monkeypatch)[0]

    without, with_copy = losses(0, 2), losses(0, 2, 10, 10)
    assert with_copy[0] == pytest.approx(without[0], rel=1e-9)  # 10 is a copy of 0
    assert with_copy[1] > without[1] + 0.1  # but not of 2


def live_bytes(work: Callable[[], object]) -> int:
    """Return the peak increase, in bytes, of tensor memory on the CPU while `work` runs."""
    with profile(profile_memory=True) as recorded:
        work()
    changes = [e.nbytes() for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    peak = now = 0
    for change in changes:
        now += change
        peak = max(peak, now)
    return peak


def test_more_micro_batches_need_room_for_their_vectors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ranks = MODELS["one vector"](), Ranks(1)
    ranks.of_thread.rank = 0
    monkeypatch.setattr(grad_cache, "dist", ranks)
    ours, one_graph = {}, {}
    for count in (2, 8):
        batches = micro_batches(1, [positive(9)] * count)  # the longest text: all have the same width
        encode = [partial(model, **batch, represent=True) for batch in batches]
        accumulate(model, batches, encode)  # from here on, the parameters have gradients
        ours[count] = live_bytes(partial(accumulate, model, batches, encode))
        one_graph[count] = live_bytes(lambda encode=encode: [encode_one() for encode_one in encode])
    vectors = 3 * 16 * 8  # bytes of the vectors of a query and two documents
    assert one_graph[8] - one_graph[2] > 6 * 100 * vectors
    assert ours[8] - ours[2] < 6 * 3 * vectors
