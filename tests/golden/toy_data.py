"""The data that the golden values are made of: the toy shards and collections, each made once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests import toy


class ToyData(NamedTuple):
    """Folders of toy data, all with one tokenizer."""

    shards: Path
    held_out: Path
    pairs: Path
    collection: Path
    scored: Path
    classes: Path

    @classmethod
    def make(cls, folder: Path) -> ToyData:
        """Make all data in a folder."""
        shards = toy.write_shards(folder / "toy")
        collection = toy.write_collection(folder / "collection", shards / "tokenizer.json")
        return cls(
            shards,
            toy.write_shards_with(folder / "more", shards, 60),
            toy.write_pairs(folder / "pairs", shards),
            collection,
            toy.write_scored(folder / "scored", collection),
            toy.write_classes(folder / "classes", shards / "tokenizer.json"),
        )
