"""GradCache against one graph of the whole step, on simulated ranks."""

import copy
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from deepsiam.models.config import resize_embeddings
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.matching.dual_encoder import DualEncoder
from deepsiam.models.matching.siamese import Siamese
from deepsiam.models.pretraining.pairs import PairsConfig
from deepsiam.trainer.training.engine import grad_cache
from tests.models.matching.examples import positive, siamese
from tests.models.tiny import VOCABULARY, HashedTeacher, Text, rngs, tensors, trunk
from tests.toy import FULL_TESTS
from tests.trainer.training.engine.steps_in_parts import (
    COUNT,
    DROPOUT,
    EXAMPLES,
    MODELS,
    SIDES,
    SPARSE,
    Gradients,
    Ranks,
    accumulate,
    cached,
    compare,
    gradients_of,
    in_one_graph,
    micro_batches,
)

# numbers of ranks and sizes of micro-batches: several on one rank, one on each of two, two on each of four
SPLITS = [(1, 2), (2, 4), (4, 1)]
if FULL_TESTS:
    SPLITS += [(1, 8), (1, 4), (1, 1), (2, 2), (2, 1), (4, 2), (8, 1)]
any_split = pytest.mark.parametrize(("ranks", "size"), SPLITS)
SHAPE: dict[str, Any] = {"pooling": "mean", "similarity": "cosine", "temperature": 0.2}
of_any_width = pytest.mark.parametrize("dimensions", [{}, {"dimensions": [12, 4]}], ids=str)


@pytest.mark.parametrize("name", MODELS)
def test_any_split_gives_the_loss_and_the_gradient_of_one_batch(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model, (whole,) = MODELS[name](), micro_batches(COUNT)
    losses, gradients = in_one_graph(copy.deepcopy(model), [whole])
    for ranks, size in SPLITS:
        ours = cached(model, micro_batches(size), ranks, monkeypatch)
        compare(([sum(ours[0])], ours[1]), (losses, gradients), 1e-9)


def at_once(
    model: DualEncoder, batch: Mapping[str, Tensor], weights: Mapping[str, float]
) -> tuple[list[float], Gradients]:
    """Compute the weighted losses of a whole step as one micro-batch in one graph, and the gradient of their mean."""
    whole = copy.deepcopy(model)
    sums = whole(**batch)
    total = sum(weight * sums[term] for term, weight in weights.items())
    (total / COUNT).backward()
    return [total.item()], gradients_of([whole])


@any_split
@pytest.mark.parametrize(
    "way",
    [
        {"similarity": "cosine"},
        {"similarity": "cosine", "both_directions": True},
        {"similarity": "cosine", "same_side": True, "both_directions": True},
        {"similarity": "cosine", "score": {"name": "siamese", "hardness": 2.0, "spread": 0.5}},
        {"score": {"name": "colbert", "dimension": 6}},
        {"score": {"name": "sparse", "regularise": {"query": {"flops": 0.1}, "document": {"l1": 0.2}}}},
    ],
    ids=str,
)
def test_streamed_pairs_are_compared_with_those_of_the_whole_step(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any], ranks: int, size: int
) -> None:
    """Pairs of one group and pairs of one text are in different micro-batches."""
    texts = [(30, 5), (31, 6), (30, 7), (32, 8), (33, 5), (34, 9), (35, 10), (36, 36)]
    groups = ["a", "b", "c", "d", "e", "b", "f", "g"]
    pairs = [Text([np.array([q, q]), np.array([d, 12, d])], group=g) for (q, d), g in zip(texts, groups, strict=True)]

    def batches(negatives: str, size: int) -> tuple[DualEncoder, Mapping[str, float], list[dict[str, Tensor]]]:
        lengths = {"max_query_tokens": 6, "max_document_tokens": 12}
        keys, start = PairsConfig(name="pairs", negatives=negatives, temperature=0.2, **lengths, **way), trunk()
        torch.manual_seed(0)  # of heads and markers: both models have the same
        resize_embeddings(keys, start, VOCABULARY)
        batcher = keys.batcher(VOCABULARY)
        examples = batcher.examples(pairs)
        parts = [examples[start : start + size] for start in range(0, COUNT, size)]
        made = [tensors(batcher.micro_batch(part, rngs(len(part)))) for part in parts]
        return keys.model(start).double(), keys.weights, made

    whole, weights, (batch,) = batches("micro_batch", COUNT)
    expected = at_once(whole, batch, weights)
    model, weights, of_step = batches("step", size)
    same_step(cached(model, of_step, ranks, monkeypatch, weights), expected)


@any_split
@of_any_width
def test_the_same_documents_are_ignored_for_any_split(
    monkeypatch: pytest.MonkeyPatch, dimensions: dict[str, list[int]], ranks: int, size: int
) -> None:
    keys = siamese(negatives="step", ignore_above=0.02, hard_negatives=1, **SHAPE, **dimensions)
    examples = [replace(e, candidates=np.append(e.candidates, 3 + i % 3)) for i, e in enumerate(EXAMPLES)]
    examples = [replace(e, labels=np.array([1, 0], np.float32)) for e in examples]
    model, (whole,) = Siamese(trunk(), keys).double(), micro_batches(COUNT, examples, keys)
    sums = model(**whole)
    assert set(sums) == set(keys.weights)
    assert all(0 < float(value) < COUNT for term, value in sums.items() if term.startswith("ignored"))
    ours = cached(model, micro_batches(size, examples, keys), ranks, monkeypatch)
    same_step(ours, at_once(model, whole, keys.weights))


@any_split
@pytest.mark.parametrize("same_side", [False, True])
def test_both_sides_are_those_of_the_whole_step(
    monkeypatch: pytest.MonkeyPatch, same_side: bool, ranks: int, size: int
) -> None:
    """Micro-batches of one size have documents of several numbers: the columns of queries lie between them."""
    keys = siamese(negatives="step", hard_negatives=2, both_directions=True, same_side=same_side, **SHAPE)
    model, (whole,) = Siamese(trunk(), keys).double(), micro_batches(COUNT, EXAMPLES, keys)
    ours = cached(model, micro_batches(size, EXAMPLES, keys), ranks, monkeypatch, keys.weights)
    same_step(ours, at_once(model, whole, keys.weights))


@any_split
@of_any_width
def test_several_losses_are_those_of_one_batch(
    monkeypatch: pytest.MonkeyPatch, dimensions: dict[str, list[int]], ranks: int, size: int
) -> None:
    """The softmax is over the documents of the step, the others over each query's own scored candidates."""
    table = {"softmax": 1.0, "kl": 0.5, "margin_mse": 0.05}
    drawn = {"negatives": "step", "candidates": {"per_query": 3}}
    keys = siamese(loss=table, **drawn, teacher_scale="min_max", learn_temperature=True, **SHAPE, **dimensions)
    rng, model = np.random.default_rng(0), Siamese(trunk(), keys).double()
    given = [(2, 3, 4), (5, 6), (7, 3, 5), (8, 9, 4), (3,), (2, 4, 5), (0, 6, 9), (0, 1, 2)]
    examples = []
    for example, others in zip(EXAMPLES, given, strict=True):
        scores = rng.normal(0, 2, 1 + len(others)).astype(np.float32)
        candidates, labels = np.array([example.candidates[0], *others]), np.zeros_like(scores)
        examples.append(replace(example, candidates=candidates, labels=labels, scores=scores))
    (whole,) = micro_batches(COUNT, examples, keys)
    ours = cached(model, micro_batches(size, examples, keys), ranks, monkeypatch)
    same_step(ours, at_once(model, whole, keys.weights))


def with_teacher(batches: list[dict[str, Tensor]], width: int) -> list[dict[str, Tensor]]:
    """Put a teacher's vectors in place of the keys of texts."""
    teacher, sides = HashedTeacher(width), {"query": "teacher_queries", "document": "teacher_documents"}
    vectors = (
        {name: torch.from_numpy(teacher.vectors(side, batch[name].numpy())) for side, name in sides.items()}
        for batch in batches
    )
    return [{**batch, **taught} for batch, taught in zip(batches, vectors, strict=True)]


@any_split
@pytest.mark.parametrize(
    ("width", "shape"), [(9, {}), (9, {"dimensions": [12, 4], "learn_temperature": True}), (None, {})], ids=str
)
def test_a_teachers_vectors_are_learned_alike_for_any_split(
    monkeypatch: pytest.MonkeyPatch, width: int | None, shape: dict[str, Any], ranks: int, size: int
) -> None:
    """The score matrix is that of the step; the softmax beside it excludes relevant documents, the matrix none."""
    table = {"vectors": 2.0, "vectors_mse": 0.5, "batch_kl": 0.7, "softmax": 0.3}
    keys = siamese(loss=table, negatives="step", negatives_per_query=1, teacher_width=width, **SHAPE, **shape)
    model = Siamese(trunk(), keys).double()
    whole, *parts = (with_teacher(micro_batches(count, keys=keys), width or model.width) for count in (COUNT, size))
    assert len(parts[0]) == COUNT // size
    same_step(cached(model, parts[0], ranks, monkeypatch), at_once(model, whole[0], keys.weights))


def test_dropout_is_that_of_each_micro_batch_for_any_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where activations are recomputed, and in single precision."""
    model, batches = MODELS["one vector"](**DROPOUT), micro_batches(2)
    expected = in_one_graph(copy.deepcopy(model), batches)
    for ranks in (1, 2, 4):
        compare(cached(model, batches, ranks, monkeypatch), expected, 1e-9)
    single = copy.deepcopy(model).float()
    compare(cached(single, batches, 2, monkeypatch), in_one_graph(copy.deepcopy(single), batches), 1e-5)
    recomputed = copy.deepcopy(model)
    recompute_layers(recomputed)
    compare(cached(recomputed, batches, 1, monkeypatch), expected, 1e-9)
    without, _ = in_one_graph(model.eval(), batches)
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


@any_split
def test_regularisers_are_those_of_the_whole_step(monkeypatch: pytest.MonkeyPatch, ranks: int, size: int) -> None:
    model, batches = SPARSE.model(trunk(**DROPOUT)).double(), micro_batches(size, keys=SPARSE)
    same_step(cached(model, batches, ranks, monkeypatch), regularised(copy.deepcopy(model), batches))


def test_step_negatives_and_regularisers_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SPARSE.model_copy(update={"negatives": "step"})
    model = keys.model(trunk()).double()
    whole = cached(model, micro_batches(COUNT, keys=keys), 1, monkeypatch)
    for ranks, size in ((1, 2), (2, 2), (4, 1)):
        same_step(cached(model, micro_batches(size, keys=keys), ranks, monkeypatch), whole)


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
            assert documents.keys[:, 0].tolist() == [0, 10, 11, 20, 21, 22, 30]
            assert documents.vectors[:, 0, 0].tolist() == [0, 1, 1, 2, 2, 2, 3]
            assert documents.mask.tolist() == [[True, False, False]] * 6 + [[False] * 3]
            assert documents.places == [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 7)][rank::size]


def live_bytes(work: Callable[[], object]) -> int:
    """Return the peak increase, in bytes, of tensor memory on the CPU while `work` runs."""
    gc.collect()  # what other tests left would be freed while `work` runs
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
