"""The folders of shards that collections are made from, and the text of their tokens.

The text is what the tokenizer decodes: with a lower-casing tokenizer it has no capitals, and spaces around punctuation
marks may differ; a character that the vocabulary lacks is `[UNK]`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.format import Where, check_id
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.sources.bytes_read import counter
from deepsiam.data_prep.tokenizers import tokenizer

Numbered = tuple[Where, TokenDocument]  # a document, with its number in the shard from 1


class ShardFolder:
    """A folder of shards."""

    def __init__(self, directory: Path, *, dialogues: bool) -> None:
        """Read the manifest; raise InputError if it is bad, or if `dialogues` is wrong about its documents."""
        self.manifest = Manifest.load(directory)
        self.tokenizer = tokenizer.load(directory / "tokenizer.json")
        if self.manifest.source.get("pairs") is True:
            raise InputError(f"{directory}: its documents are pairs, to pre-train on: name articles or dialogues")
        if self.manifest.source.get("dialogues") is (not dialogues):
            description = "not dialogues: name what `data_prep reddit` made" if dialogues else "dialogues, not articles"
            raise InputError(f"{directory}: its documents are {description}")

    def files(self) -> list[Path]:
        """Return the manifest, the tokenizer and the shards."""
        directory = self.manifest.directory
        return [directory / name for name in (NAME, "tokenizer.json", *(entry.name for entry in self.manifest.shards))]

    def shards(self) -> Iterator[list[Numbered]]:
        """Yield the documents of each shard."""
        for index in range(len(self.manifest.shards)):
            shard = Shard.open(self.manifest, index)
            documents = [(Where(shard.path, number), item) for number, item in enumerate(shard.documents(), 1)]
            for where, item in documents:
                check_id(item.id, "id", where)
            counter.bytes += shard.entry.bytes
            yield documents

    def text(self, tokens: np.ndarray) -> str:
        """Return the text of a segment."""
        return self.tokenizer.decode(tokens).strip()


def is_prepared(path: Path) -> bool:
    """Return whether a folder is a folder of shards or a prepared data set."""
    return (path / NAME).is_file() or (path / "shards" / NAME).is_file()


def shard_folders(by_split: Mapping[str, Sequence[Path]], *, dialogues: bool) -> dict[str, list[ShardFolder]]:
    """Open the folders of each split; `held_out` of a prepared data set belongs to the split dev."""
    folders: dict[str, list[ShardFolder]] = {}
    for split, paths in by_split.items():
        for path in paths:
            parts = [(split, path)]
            if (path / "shards" / NAME).is_file():
                parts = [(split, path / "shards"), ("dev", path / "held_out")][: 1 + (path / "held_out").is_dir()]
            for name, folder in parts:
                folders.setdefault(name, []).append(ShardFolder(folder, dialogues=dialogues))
    return folders
