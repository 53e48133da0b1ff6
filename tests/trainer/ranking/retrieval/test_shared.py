"""Batches whose computation is shared by the ranks."""

from collections.abc import Callable
from typing import Any

import pytest

from deepsiam.trainer.ranking.retrieval import shared
from deepsiam.trainer.ranking.retrieval.shared import compute_my_batches, shared_by


def results_of(rank: int, ranks: int, batches: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[Any]]:
    """What a rank computes itself and what it receives, if the other ranks compute in the same way."""
    own: list[int] = []
    round_ = iter(range(0, batches, ranks))

    def compute(batch: int) -> int:
        own.append(batch)
        return batch * batch

    def gather(results: list[Any], mine: Any) -> None:
        start = next(round_)
        results[:] = [i * i if i < batches else None for i in range(start, start + ranks)]
        assert mine in results  # what a rank computes without a batch of its own is not used
        if start + rank < batches:
            assert results[rank] == mine

    monkeypatch.setattr(shared.dist, "all_gather_object", gather)
    with shared_by(rank, ranks):
        return own, list(compute_my_batches(range(batches), compute))


@pytest.mark.parametrize("batches", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_rank_computes_its_share_and_gets_all(ranks: int, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for rank in range(ranks):
        own, got = results_of(rank, ranks, batches, monkeypatch)
        assert got == [(i, i * i) for i in range(batches)]
        shares.append(own)
    assert {batch for share in shares for batch in share} == set(range(batches))
    assert {len(share) for share in shares} == {-(-batches // ranks)}  # under ZeRO-3 all must compute equally often


def test_outside_a_rank_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., None] = lambda *_: pytest.fail("asked other ranks")  # noqa: E731
    monkeypatch.setattr(shared.dist, "all_gather_object", refuse)
    beats: list[int] = []
    with shared_by(1, 2, lambda: beats.append(1)):
        pass
    assert list(compute_my_batches("ab", str.upper)) == [("a", "A"), ("b", "B")]
    assert not beats
    with shared_by(0, 1, lambda: beats.append(1)):
        assert list(compute_my_batches("ab", str.upper)) == [("a", "A"), ("b", "B")]
    assert len(beats) == 2
