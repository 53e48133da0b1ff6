"""The probe: its figures against plain loops, shared by ranks, and without an effect on the training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.batching.packing import pad
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import MicroBatch
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.trainer.ranking.retrieval import shared
from deepsiam.trainer.ranking.retrieval.encode import length_batches
from deepsiam.trainer.ranking.while_training import probe as probe_module
from deepsiam.trainer.ranking.while_training.probe import PretrainingProbe, bottleneck_rises, figures, open_probe
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import ShardProbeConfig
from tests import toy


def plain_figures(
    queries: Sequence[np.ndarray],
    documents: Sequence[np.ndarray],
    relevant: Sequence[frozenset[int]],
    left_out: Mapping[int, np.ndarray],
) -> dict[str, float]:
    """The same figures, computed in plain loops."""
    queries = [q / math.sqrt(q @ q) for q in queries]
    documents = [d / math.sqrt(d @ d) for d in documents]
    reciprocal, gaps = [], []
    for number, (query, wanted) in enumerate(zip(queries, relevant, strict=True)):
        ranked = sorted(range(len(documents)), key=lambda i: (-np.float32(query @ documents[i]), i))
        ranked = [i for i in ranked if i not in left_out.get(number, ())][:10]
        reciprocal.append(next((1 / rank for rank, i in enumerate(ranked, 1) if i in wanted), 0.0))
        gaps += [sum((query - documents[i]) ** 2) for i in wanted]
    pairs = [(a, b) for a in range(len(documents)) for b in range(a)]
    near = [math.exp(-2 * sum((documents[a] - documents[b]) ** 2)) for a, b in pairs]
    values = torch.linalg.svdvals(torch.tensor(np.array(documents))).numpy()
    shares = [value / values.sum() for value in values if value > 1e-9]
    return {
        "mrr@10": sum(reciprocal) / len(queries),
        "alignment": sum(gaps) / len(gaps),
        "uniformity": math.log(sum(near) / len(near)),
        "effective_rank": math.exp(-sum(share * math.log(share) for share in shares)),
    }


@given(st.integers(1, 8), st.integers(2, 30), st.integers(1, 6), st.integers(0, 99), st.booleans(), st.integers(1, 30))
def test_figures_are_those_of_loops(queries: int, documents: int, width: int, seed: int, own: bool, block: int) -> None:
    rng = np.random.default_rng(seed)
    rows, corpus = rng.normal(size=(queries, width)), rng.normal(size=(documents, width))
    relevant = [frozenset(rng.choice(documents, rng.integers(1, 3), replace=False).tolist()) for _ in rows]
    left_out = {i: rng.integers(documents, size=1 + i) for i in range(0, queries, 2)} if own else {}
    expected = plain_figures(list(rows), list(corpus), relevant, left_out)
    with patch.object(probe_module, "ROWS", block):
        assert figures(rows, corpus, relevant, left_out) == pytest.approx(expected, abs=1e-9)


def test_figures_at_their_ends() -> None:
    one_point = np.ones((5, 3))
    collapsed = figures(one_point, one_point, [frozenset([i]) for i in range(5)])
    del collapsed["mrr@10"]
    assert collapsed == pytest.approx({"alignment": 0, "uniformity": 0, "effective_rank": 1})
    axes = np.eye(4)
    spread = figures(axes, axes, [frozenset([i]) for i in range(4)])
    assert spread == pytest.approx({"mrr@10": 1, "alignment": 0, "uniformity": -4, "effective_rank": 4})
    assert figures(np.zeros((1, 3)), np.zeros((1, 3)), [frozenset([0])])["uniformity"] == 0


class Engine:
    """A rank that embeds a text as simple sums of its ids."""

    model = torch.nn.Identity()  # without a bottleneck

    def __init__(self, rank: int, size: int):
        self.world = World(rank, size, rank, size)
        self.calls = 0

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        self.calls += 1
        ids = np.where(mask, ids, 0).astype(np.float64)
        return np.stack([ids.sum(1), (ids**2).sum(1) / 40, mask.sum(1), ids[:, 1]], axis=1).astype(np.float32)


@pytest.fixture
def tok(shards: Path) -> Tokenizer:
    return tokenizers.load(shards / "tokenizer.json")


def probe_of(tok: Tokenizer, collection: Path, split: str = "train", **keys: int) -> PretrainingProbe:
    return open_probe(ShardProbeConfig(collection=collection, split=split, every=3, max_tokens=16, **keys), tok)


@pytest.fixture
def probe(tok: Tokenizer, toy_collection: Path) -> PretrainingProbe:
    return probe_of(tok, toy_collection, queries=5, documents=70)


@pytest.mark.parametrize("ranks", [2, 8])
def test_any_ranks_measure_the_same(probe: PretrainingProbe, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "BATCH", 2)
    alone = probe.measure(Engine(0, 1), [], lambda: None)  # type: ignore[arg-type]
    batches = list(length_batches([len(row) for row in probe.rows], 2 * probe.max_tokens))
    rounds = iter(range(0, len(batches), ranks))

    def gather(results: list[Any], mine: np.ndarray) -> None:
        for rank, batch in enumerate(batches[(start := next(rounds)) : start + ranks]):
            results[rank] = Engine(rank, ranks).embed(*pad([probe.rows[i] for i in batch], 16, probe.pad))
        assert any(np.array_equal(mine, rows) for rows in results)

    monkeypatch.setattr(shared.dist, "all_gather_object", gather)
    second, beats = Engine(1, ranks), list[int]()
    assert probe.measure(second, [], lambda: beats.append(1)) == alone  # type: ignore[arg-type]
    assert len(beats) == second.calls == math.ceil(len(batches) / ranks)


def test_the_probe_does_not_rank_the_query_itself(tok: Tokenizer, tmp_path: Path) -> None:
    texts = {f"t-{i}": " ".join(sentences) for i, sentences in enumerate(toy.documents(8, seed=2))}
    rows = "".join(f"t-{i}\tt-{(i + 1) % 8}\t1\nt-{i}\tgone\t1\n" for i in range(8))
    build("beir", [toy.write_beir(tmp_path, texts, texts, dev=rows)], tmp_path, tok)
    probe = probe_of(tok, tmp_path, "dev", queries=8, documents=8)
    assert sorted(probe.left_out) == list(range(8))
    for query, (own,) in probe.left_out.items():
        np.testing.assert_array_equal(probe.rows[query], probe.rows[8 + own])
        assert own not in probe.relevant[query]


def test_the_probe_has_what_the_recipe_asks_for(probe: PretrainingProbe, tok: Tokenizer, toy_collection: Path) -> None:
    """In the toy collection, relevant documents are those that begin with the query."""
    assert (len(probe.relevant), len(probe.rows)) == (5, 5 + 70)
    assert all(probe.relevant)
    assert max(map(len, probe.rows)) <= 16
    for query, wanted in zip(probe.rows, probe.relevant, strict=False):
        for i, document in enumerate(probe.rows[5:]):
            begins = np.array_equal(document[: len(query) - 1], query[:-1])
            assert begins == (i in wanted)
    with pytest.raises(InputError, match="probe.collection: .* another tokenizer than the shards"):
        probe_of(replace(tok, fingerprint="0" * 64), toy_collection)


def test_equal_embeddings_do_not_rank_relevant_documents_first(tok: Tokenizer, toy_collection: Path) -> None:
    probe = probe_of(tok, toy_collection, queries=20, documents=200)
    equal = np.ones((len(probe.rows), 4), dtype=np.float32)
    chance = sum(1 / rank for rank in range(1, 11)) / (len(probe.rows) - 20)
    assert figures(equal[:20], equal[20:], probe.relevant)["mrr@10"] < 5 * chance


def test_bottleneck_terms_are_reported_with_their_rise_in_nats_per_target() -> None:
    """Of three terms, two depend on a single vector of the sequence; there are three equal ranks."""

    def evaluate(batch: MicroBatch, swap: bool = False) -> torch.Tensor:
        return torch.tensor([10.0, 5.0, 7.0]) + swap * torch.tensor([batch.counts["a"] * 2.0, 0.0, -1.0])

    engine = Mock(terms=["a", "mlm", "b"], evaluate=evaluate, sum_over_ranks=lambda rises: 3 * rises)
    engine.model = Mock(bottleneck_terms=("a", "b"))
    batches = [MicroBatch({}, {"a": 4, "mlm": 9, "b": 5}, 0), MicroBatch({}, {"a": 8, "mlm": 9, "b": 15}, 0)]
    expected = {"bottleneck/a": pytest.approx(2.0), "bottleneck/b": pytest.approx(-2 / 20)}
    assert bottleneck_rises(engine, batches) == expected
    assert bottleneck_rises(Engine(0, 1), batches) == {}  # type: ignore[arg-type]


def test_a_fine_tuning_is_probed_by_its_own_embeddings(probe: PretrainingProbe, tok: Tokenizer) -> None:
    """Not by the raw [CLS] state: pooling and similarity define the embedding."""
    from deepsiam.trainer.training.engine.engine import Engine as RealEngine

    torch.manual_seed(0)
    trunk = build_trunk({**toy.TRUNK, "vocab_size": tok.vocab_size, "pad_token_id": tok.pad}).eval()
    engine = RealEngine.__new__(RealEngine)  # one rank, without DeepSpeed
    keys = SiameseConfig(name="siamese", pooling="mean", similarity="cosine")
    engine.model, engine.world = Siamese(trunk, keys), World(0, 1, 0, 1)
    engine.deepspeed, engine.device = Mock(), torch.device("cpu")
    embeddings = probe.embeddings(engine, lambda: None)
    assert len(embeddings) == len(probe.rows)
    for number, row in enumerate(probe.rows):
        ids = torch.from_numpy(row)[None]
        with torch.no_grad():
            mean = trunk(input_ids=ids).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(embeddings[number], mean / mean.norm(), atol=1e-6)
