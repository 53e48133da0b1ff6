"""The toy collection, opened."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.collection import Collection


@pytest.fixture
def opened(toy_collection: Path) -> Collection:
    """The toy collection, opened."""
    return Collection.open(toy_collection)
