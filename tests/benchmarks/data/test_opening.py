"""The benchmark of opening a mix: the collections that it makes up are opened and read as any others are."""

from pathlib import Path

from benchmarks.data.opening import MICRO_BATCHES, measure


def test_a_mix_of_made_up_pairs_opens_and_gives_micro_batches(tmp_path: Path) -> None:
    results = measure(tmp_path, 2_000, 3)
    assert results["pairs of each"] * results["collections"] == 6_000
    assert results["seconds to open"] > 0
    assert results[f"seconds to make {MICRO_BATCHES} micro-batches"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
