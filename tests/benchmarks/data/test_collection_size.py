"""Memory for a tenth of MS MARCO's passages: processes share the pages of the files and hold little else."""

from pathlib import Path

from benchmarks.data.collection_size import measure


def test_memory_of_a_large_collection(tmp_path: Path) -> None:
    results = measure(tmp_path / "collection", 880_000, 2)
    assert results["memory of all processes, bytes"] < 200e6  # a tenth of the 2 GB that a host is allowed
    assert results["of it not file pages, bytes"] < 20e6  # a dict of the ids would take 100 MB in each process
