from pathlib import Path

import pytest

from deepsiam.data_prep.collections.collection import Collection
from tests.trainer.training.data.small_collections import built


@pytest.fixture
def judged(shards: Path, tmp_path: Path) -> Collection:
    """Two queries with given negatives; "c" is relevant to one of them and negative for the other."""
    lines = [
        {"query": "one", "pos": ["a", "b"], "neg": ["c", "d"]},
        {"query": "two two two two", "pos": ["c"], "neg": ["a", "e"]},
    ]
    return built(tmp_path, shards, lines)
