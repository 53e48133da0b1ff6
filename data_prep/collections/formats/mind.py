"""MIND: the folders of the Microsoft News Dataset, MINDlarge_train and the like, each with two tables without a header.

behaviors.tsv   impression, user, time, history, impressions: the ids of the news that the user had clicked before, and
                of the news that was shown: N123-1 if clicked, N456-0 if not; separated by spaces
news.tsv        id, category, subcategory, title, abstract, url, entities of the title, entities of the abstract

Older tables are read too: those without the impression (user, time, history, impressions) and with one column of
entities, and the first ones, whose three columns are user, history and `clicked#TAB#others#TAB#time`.

The titles of all news are held in memory.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

from deepsiam.data_prep.collections.files.named_files import plain_first
from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Where,
    check_id,
    check_text,
    files_by_split,
    text_lines,
)
from deepsiam.data_prep.collections.ids import content_id, zeros_hint
from deepsiam.data_prep.common.errors import InputError

LABELS = {"0": 0.0, "1": 1.0}


class Mind(Format):
    """A query is a history: its parts are the titles, empty for a new user. A group is an impression.

    A document is the title and, if there is one, the abstract of a piece of news.
    """

    summary = "MIND: folders with behaviors.tsv and news.tsv"
    repeats = True
    item_groups = True

    def __init__(self, inputs: Sequence[Path]) -> None:
        self.by_split = {}
        self.paths, self.news = list[Path](), list[Path]()
        for split, folders in files_by_split(inputs).items():
            tables = [(_file(folder, "behaviors.tsv"), _file(folder, "news.tsv")) for folder in folders]
            self.by_split[split] = [behaviors for behaviors, _ in tables]
            self.news += [news for _, news in tables]
            self.paths += [file for pair in tables for file in pair]
        self.by_part = {"corpus": self.news}  # the texts of queries are titles, by all tables

    def corpus(self) -> Iterator[Text]:
        """Yield the news of every folder; most of it is in several folders."""
        for name, title, abstract, where in self._news():
            yield Text(name, [f"{title} {abstract}".strip()], where)

    def queries(self) -> Iterator[Text]:
        for split in self.by_split:
            for history, _, where in self._impressions(split):
                if unknown := [name for name in history if name not in self._titles]:
                    hint = zeros_hint(unknown[0], self._titles)
                    raise InputError(f"{where}: {unknown[0]!r} of the history is not in any news.tsv{hint}")
                yield Text(content_id(" ".join(history)), [self._titles[name] for name in history] or [""], where)

    def groups(self, split: str) -> Iterator[Labelled]:
        for history, news, where in self._impressions(split):
            yield Labelled(content_id(" ".join(history)), [name for name, _ in news], [y for _, y in news], where)

    @cached_property
    def _titles(self) -> dict[str, str]:
        return {name: title for name, title, _, _ in self._news()}

    def _news(self) -> Iterator[tuple[str, str, str, Where]]:
        for where, line in chain.from_iterable(map(text_lines, self.news)):
            cells = line.split("\t")
            if len(cells) not in (7, 8):
                raise InputError(f"{where}: {len(cells)} columns, expected 7 or 8 between tabs")
            name, title, abstract = check_id(cells[0], "id", where), cells[3], cells[4].strip()
            if " " in name or (title.lower(), abstract.lower()) == ("title", "abstract"):
                raise InputError(f"{where}: a header, or {name!r} is not the id of news: remove this line")
            yield name, check_text(title, "title", where), abstract, where

    def _impressions(self, split: str) -> Iterator[tuple[list[str], list[tuple[str, float]], Where]]:
        """Yield the history of each impression, and the news that it showed with their labels."""
        for where, line in chain.from_iterable(map(text_lines, self.by_split[split])):
            cells = line.split("\t")
            if len(cells) not in (3, 4, 5):
                raise InputError(f"{where}: {len(cells)} columns, expected 5 between tabs")
            history, news = cells[-2:]
            yield history.split(), _labelled(news, where), where


def _labelled(news: str, where: Where) -> list[tuple[str, float]]:
    if "#TAB#" in news:
        clicked, ignored, *_ = news.split("#TAB#")
        labelled = [(name, 1.0) for name in clicked.split()] + [(name, 0.0) for name in ignored.split()]
    else:
        pairs = [item.rpartition("-") for item in news.split()]
        if flaws := [name + dash + label for name, dash, label in pairs if not name or label not in LABELS]:
            hint = "the labels -1 and -0 are missing: a header, or the test set, which has none: leave it out"
            raise InputError(f"{where}: {flaws[0]!r}: {hint if len(flaws) == len(pairs) else 'label is not -1 or -0'}")
        labelled = [(name, LABELS[label]) for name, _, label in pairs]
    if not labelled:
        raise InputError(f"{where}: an impression that shows no news")
    return labelled


def _file(folder: Path, name: str) -> Path:
    if file := plain_first(folder, name).get(name):
        return file
    raise InputError(f"{folder}: has no {name}; name the folders of MIND, such as MINDsmall_train")
