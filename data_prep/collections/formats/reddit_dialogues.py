"""Our own prepared dialogues: the folders that `python -m data_prep reddit` made.

OUT/shards      the split train
OUT/held_out    the split dev, if --held-out was given; test=OUT/held_out names it test

Every reply of a dialogue is a document. Its query is the nearest utterances before it, as many as fit in CONTEXT
tokens, and at least the one that it answers. The candidates are the reply and NEGATIVES replies of other threads, all
with different tokens. Negatives are sampled from a window of WINDOW replies, or somewhat more, of neighbouring shards:
a fair sample, since prepared documents are in the order of a hash. The sampling is keyed by the document and the
reply's position.

The text is decoded from tokens: see prepared.py for what that loses. The documents of two windows are in memory.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from deepsiam.data_prep.collections.format import Format, Labelled, Text, Where, files_by_split
from deepsiam.data_prep.collections.prepared import ShardFolder, shard_folders
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.shards.document import TokenDocument

CONTEXT = 360  # tokens, as in the Poly-encoders paper
NEGATIVES = 19
WINDOW = 100_000  # replies; a shard may have more
TRIES = 100  # to sample 2 * NEGATIVES


class Reply(NamedTuple):
    """An utterance that answers another."""

    document: TokenDocument
    position: int
    where: Where

    @property
    def id(self) -> str:
        """Its id, which is also that of its context."""
        return f"{self.document.id}#{self.position}"

    @property
    def tokens(self) -> bytes:
        """Its tokens."""
        return self.document.segments[self.position].tobytes()

    @property
    def beginning(self) -> int:
        """The position of the first utterance of its context."""
        start, tokens = self.position - 1, len(self.document.segments[self.position - 1])
        while start and (tokens := tokens + len(self.document.segments[start - 1])) <= CONTEXT:
            start -= 1
        return start


class RedditDialogues(Format):
    """A query is the utterances before a reply, a group the reply and 19 others."""

    summary = "dialogues prepared by `data_prep reddit`: their folders"
    item_groups = True

    def __init__(self, inputs: Sequence[Path]) -> None:
        self.folders = shard_folders(files_by_split(inputs), dialogues=True)
        self.by_split = {
            split: [file for folder in folders for file in folder.files()] for split, folders in self.folders.items()
        }
        self.paths = list(chain.from_iterable(self.by_split.values()))

    def corpus(self) -> Iterator[Text]:
        for folder, shard in self._shards(*self.folders):
            for reply in shard:
                yield Text(reply.id, [folder.text(reply.document.segments[reply.position])], reply.where)

    def queries(self) -> Iterator[Text]:
        for folder, shard in self._shards(*self.folders):
            for reply in shard:
                context = reply.document.segments[reply.beginning : reply.position]
                yield Text(reply.id, [folder.text(tokens) for tokens in context], reply.where)

    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the candidates of each reply, the reply itself first."""
        for window in self._windows(split):
            for reply in window:
                yield Labelled(reply.id, _candidates(reply, window), [1.0, *[0.0] * NEGATIVES], reply.where)

    def _shards(self, *splits: str) -> Iterator[tuple[ShardFolder, list[Reply]]]:
        for split in splits:
            for folder in self.folders[split]:
                for shard in folder.shards():
                    yield folder, [reply for where, document in shard for reply in _replies(document, where)]

    def _windows(self, split: str) -> Iterator[list[Reply]]:
        """Yield the replies of a split in windows of whole shards; the remaining replies join the last window."""
        window: list[Reply] = []
        next_window: list[Reply] = []
        for _, shard in self._shards(split):
            next_window += shard
            if len(next_window) >= WINDOW:
                if window:
                    yield window
                window, next_window = next_window, []
        yield window + next_window


def _replies(document: TokenDocument, where: Where) -> Iterator[Reply]:
    """Yield the replies after the context, which repeats another document; skip pairs that have an empty utterance."""
    for position in range(max(document.context, 1), len(document.segments)):
        if len(document.segments[position - 1]) and len(document.segments[position]):
            yield Reply(document, position, where)


def _candidates(reply: Reply, window: Sequence[Reply]) -> list[str]:
    rng = keyed_rng(f"reddit_dialogues {reply.id}")
    ids_by_text = {reply.tokens: reply.id}
    for _ in range(TRIES):
        for i in rng.integers(len(window), size=2 * NEGATIVES).tolist():
            if window[i].document.group != reply.document.group:
                ids_by_text.setdefault(window[i].tokens, window[i].id)
            if len(ids_by_text) == 1 + NEGATIVES:
                return list(ids_by_text.values())
    raise InputError(f"{reply.where}: fewer than {NEGATIVES} different replies of other threads; prepare more of them")
