"""Wikipedia article search (Wu et al., 2018; Humeau et al., 2020): a sentence, and the article that it was taken from.

The inputs are folders that `python -m data_prep wikipedia` made (OUT/held_out is the split dev) and WikiExtractor's
JSON lines, as files or folders. One sentence of an article is the query, the rest is the document: both have the id of
the article, and a hash of that id chooses the sentence. JSON lines do not tell headings from short paragraphs, so there
it is chosen from paragraphs of several sentences. Articles without text (redirects) or a second sentence are left out.

Splits other than train have at most POOL articles, and their queries rank POOL: their own and, if these are fewer, some
of train. If only files of train are named, dev and test are taken from them: POOL articles each, or a tenth if that is
less. Hashes of the ids choose all of these. The ids of the chosen articles, and one shard, are in memory.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepsiam.data_prep.collections.format import Format, Labelled, Text, Where, files_by_split
from deepsiam.data_prep.collections.ids import hash_of
from deepsiam.data_prep.collections.prepared import ShardFolder, is_prepared, shard_folders
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.sources.document import Bad, Document
from deepsiam.data_prep.sources.plain_text import Line
from deepsiam.data_prep.sources.source import File
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from deepsiam.data_prep.text.sentences import sentences

POOL = 10_001  # the right article and 10,000 others
TRAIN, CUT_SPLITS = "train", ("test", "dev")


class Article(NamedTuple):
    """An article; `text` turns one of its segments into text."""

    id: str
    where: Where
    segments: Sequence[Any]
    sentences: Sequence[int]  # the numbers of the segments that may be the query; at least two
    text: Callable[[Any], str]

    @property
    def query(self) -> int:
        """The number of the sentence that is the query."""
        return self.sentences[int(keyed_rng(f"wikipedia_search {self.id}").integers(len(self.sentences)))]

    @property
    def rest(self) -> str:
        """The text of the article without the query."""
        query = self.query
        return " ".join(self.text(segment) for i, segment in enumerate(self.segments) if i != query)


class WikipediaSearch(Format):
    """A query is a sentence, a group the article that it was taken from."""

    summary = "Wikipedia article search: what `data_prep wikipedia` made, or WikiExtractor's JSON lines"

    def __init__(self, inputs: Sequence[Path]) -> None:
        by_split = files_by_split(inputs)
        self.readers: dict[str, list[Callable[[], Iterator[Article]]]] = {split: [] for split in by_split}
        files: dict[str, list[Path]] = {split: [] for split in by_split}
        prepared = {split: [path for path in paths if is_prepared(path)] for split, paths in by_split.items()}
        for split, folders in shard_folders(prepared, dialogues=False).items():
            self.readers.setdefault(split, []).extend(partial(_stored, folder) for folder in folders)
            files.setdefault(split, []).extend(file for folder in folders for file in folder.files())
        for split, paths in by_split.items():
            for file in WIKIPEDIA.find([path for path in paths if not is_prepared(path)]):
                self.readers[split].append(partial(_extracted, file))
                files[split].append(file.path)
        self.paths = list(chain.from_iterable(files.values()))
        self.by_split = defaultdict(list, files)  # a split that is cut from train has no files

    def corpus(self) -> Iterator[Text]:
        """Yield the articles without their queries."""
        return (Text(article.id, [article.rest], article.where) for article in self._articles(*self.readers))

    def queries(self) -> Iterator[Text]:
        for article in self._articles(*self.readers):
            yield Text(article.id, [article.text(article.segments[article.query])], article.where)

    def splits(self) -> list[str]:
        """Return the splits that the files are named after, or train, dev and test."""
        return list(self._chosen)

    def groups(self, split: str) -> Iterator[Labelled]:
        if split != TRAIN:
            return (Labelled(name, [name], [1.0], where) for name, where in self._chosen[split])
        kept_out = {name for part, articles in self._chosen.items() if part != TRAIN for name, _ in articles}
        train_articles = (article for article in self._articles(TRAIN) if article.id not in kept_out)
        return (Labelled(article.id, [article.id], [1.0], article.where) for article in train_articles)

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        return None if split == TRAIN else iter([*self._chosen[split], *self._chosen.get(TRAIN, [])][:POOL])

    @cached_property
    def _chosen(self) -> dict[str, list[tuple[str, Where]]]:
        """The articles of each split; for train, only those that fill up the pools of other splits."""
        articles_by_split = {split: self._lowest(split, POOL)[0] for split in self.readers if split != TRAIN}
        if TRAIN in self.readers:
            lowest, count = self._lowest(TRAIN, (1 + len(CUT_SPLITS)) * POOL)
            if not articles_by_split:
                size = min(POOL, count // 10)
                if not size:
                    raise InputError(
                        f"{self.paths[0]}: {count} articles of several sentences are too few to cut splits from"
                    )
                articles_by_split = {name: lowest[i * size : (i + 1) * size] for i, name in enumerate(CUT_SPLITS)}
                lowest = lowest[len(CUT_SPLITS) * size :]
            articles_by_split[TRAIN] = lowest[:POOL]
        return articles_by_split

    def _lowest(self, split: str, limit: int) -> tuple[list[tuple[str, Where]], int]:
        """Return the `limit` articles of a split with the lowest hashes, lowest first, and its number of articles."""
        count = 0

        def hashed() -> Iterator[tuple[int, str, Where]]:
            nonlocal count
            for article in self._articles(split):
                count += 1
                yield hash_of(f"wikipedia_search {article.id}"), article.id, article.where

        return [(name, where) for _, name, where in nsmallest(limit, hashed())], count

    def _articles(self, *splits: str) -> Iterator[Article]:
        for split in splits:
            for reader in self.readers[split]:
                yield from (article for article in reader() if len(article.sentences) > 1)


def _stored(folder: ShardFolder) -> Iterator[Article]:
    options = folder.manifest.source.get("options")
    stages = options.get("stages") if isinstance(options, dict) else None
    if isinstance(stages, dict) and stages.get("sentences") is False:
        raise InputError(f"{folder.manifest.directory}: its segments are paragraphs; prepare it without --paragraphs")
    for shard in folder.shards():
        for where, document in shard:
            headings = set(document.headings)
            numbers = [i for i, tokens in enumerate(document.segments) if len(tokens) and i not in headings]
            yield Article(document.id, where, document.segments, numbers, folder.text)


def _extracted(file: File) -> Iterator[Article]:
    for piece in WIKIPEDIA.pieces(file, {}):
        if not isinstance(piece.content, Line):
            raise InputError(
                f"{file.path}: not WikiExtractor's JSON lines; run `data_prep wikipedia`, and name its folder"
            )
        where = Where(file.path, piece.content.number)
        for item in WIKIPEDIA.items(file, piece, {}):
            if isinstance(item, Bad):
                raise InputError(f"{where}: {item.reason}")
            if isinstance(item, Document):
                paragraphs = [sentences(paragraph) for paragraph in item.segments]
                segments = [sentence for paragraph in paragraphs for sentence in paragraph]
                in_paragraphs = np.repeat([len(paragraph) > 1 for paragraph in paragraphs], list(map(len, paragraphs)))
                yield Article(item.id, where, segments, np.flatnonzero(in_paragraphs).tolist(), str)
