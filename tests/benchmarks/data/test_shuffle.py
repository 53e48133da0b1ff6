"""The measures of the shuffle benchmark, on orders for which they are known."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import shuffle


def test_an_order_that_is_not_shuffled_keeps_every_pair() -> None:
    measures = shuffle.quality(np.arange(1024))
    assert (measures["distance moved"], measures["pairs adjacent"]) == (0, 1)
    assert measures["pairs in a batch"] == pytest.approx(1 - 31 / 1023)
    assert measures["pairs in a step"] == pytest.approx(1 - 1 / 1023)


def test_a_random_order_moves_a_third_and_keeps_no_pair() -> None:
    measures = shuffle.quality(np.random.default_rng(0).permutation(100_000))
    assert measures["distance moved"] == pytest.approx(1 / 3, abs=0.01)
    assert measures["pairs adjacent"] < 0.001


def test_both_orders_hold_an_epoch_of_documents() -> None:
    total = shuffle.LANES * shuffle.CHUNKS_PER_SHARD * shuffle.DOCUMENTS_PER_CHUNK
    assert sorted(shuffle.by_webdataset(shuffle.LANES, 1000)) == list(range(total))
    assert sorted(shuffle.by_lanes(shuffle.LANES)) == list(range(total))


def test_it_writes_the_measures_of_each_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["shuffle", "--shards", "16", "--out", str(tmp_path / "shuffle.json")])
    shuffle.main()
    orders = json.loads((tmp_path / "shuffle.json").read_text())["orders"]
    assert len(orders) == 4
    assert all(0 <= value <= 1 for measures in orders.values() for value in measures.values())
