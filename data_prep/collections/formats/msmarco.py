"""MS MARCO, passages or documents: files without headers, found by their names in a folder or among files.

collection.tsv      pid TAB passage
msmarco-docs.tsv    id TAB url TAB title TAB body; the text is title and body joined by a space, else the url
queries.*.tsv       qid TAB query; all such files are one table (msmarco-doctrain-queries.tsv too)
qrels.*.tsv         qid 0 pid grade, between tabs or spaces (msmarco-docdev-qrels.tsv, 2019qrels-pass.txt too)
qidpidtriples.*.tsv qid TAB pid of a positive TAB pid of a negative
examples.*.json     [qid, [pid, score], [pid, score], ...] a line: a positive, then others, with a teacher's scores, as
                    ColBERTv2's 64-way examples
triples.*.tsv       query TAB positive TAB negative, without ids
top1000.*           qid TAB pid TAB query TAB passage: candidates to re-rank, a query's lines in any place; or, as in
                    msmarco-docdev-top100, a run file: qid Q0 id rank score tag

Each file of qrels, triples, examples or candidates is a split, named after the file: `dev.small` (qrels.dev.small.tsv)
ranks the whole collection, `train.small` (qidpidtriples.train.small.tsv) has the file's triples, and `top1000.dev`
re-ranks the candidates of top1000.dev. SPLIT=FILE gives another name, by which files can be joined. Where the texts
come from:

- with a collection: documents from it, queries from queries.*.tsv, or else from top1000.*.
- with top1000.* but no collection: from top1000.*; qrels then only label these texts.
- with triples.*.tsv: only from these files, with ids by `content_id`: no other file can refer to them.

A negative of a triple or of an example that is a positive elsewhere in its split counts as a positive. A candidate's
label is its grade in any of the qrels, or 0; queries that no qrels judge are left out. What the qrels judge besides the
candidates counts in metrics, as not found. This needs the grades of all qrels in memory: 100 MB for MS MARCO's
passages.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from deepsiam.data_prep.collections.files.named_files import joined_by_split, named_files
from deepsiam.data_prep.collections.files.tsv import counted, id_texts, is_header, judgements, rows
from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Unlisted,
    Where,
    check_id,
    check_number,
    check_text,
    fields,
    text_lines,
)
from deepsiam.data_prep.collections.ids import content_id
from deepsiam.data_prep.common.errors import InputError

PASSAGES, DOCUMENTS, QUERIES, QRELS = "collection.tsv", "msmarco-docs.tsv", "queries.*.tsv", "qrels.*.tsv"
ID_TRIPLES, EXAMPLES, TRIPLES, CANDIDATES = "qidpidtriples.*.tsv", "examples.*.json", "triples.*.tsv", "top1000.*"
KINDS = {
    PASSAGES: r"collection\.tsv",
    DOCUMENTS: r"(msmarco-)?docs\.tsv",
    QRELS: r".*qrels.*\.(tsv|txt)",
    ID_TRIPLES: r".*qidpidtriples.*\.(tsv|txt)",
    EXAMPLES: r"examples.*\.jsonl?",
    TRIPLES: r".*triples.*\.(tsv|txt)",
    QUERIES: r".*queries.*\.(tsv|txt)",
    CANDIDATES: r".*top1000?([.-](?!tar)\w+)*",
}
UNSAID = "msmarco|qidpidtriples|triples|examples|qrels|passage|pass|docs?"
TRIPLE = ("query", "positive", "negative")


class MsMarco(Format):
    """MS MARCO's files."""

    summary = f"MS MARCO's files, or a folder of them: {', '.join(KINDS)}"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Find the files by their names; check that they belong together."""
        by_kind = named_files(inputs, KINDS, UNSAID)
        self.by_kind = {kind: [file.path for file in files] for kind, files in by_kind.items()}
        self.paths = list(chain.from_iterable(self.by_kind.values()))
        self.collections = self.by_kind[PASSAGES] + self.by_kind[DOCUMENTS]
        self.by_part = {
            part: [*files, *self.by_kind[TRIPLES], *([] if files else self.by_kind[CANDIDATES])]
            for part, files in (("corpus", self.collections), ("queries", self.by_kind[QUERIES]))
        }
        self._check(inputs)
        self.mined_splits = {file.split for kind in (TRIPLES, ID_TRIPLES, EXAMPLES) for file in by_kind[kind]}
        self.repeats = "queries" if self.collections else True
        readers: dict[str, Callable[[Path], Iterator[Labelled]]] = {
            QRELS: judgements,
            ID_TRIPLES: _id_triples,
            EXAMPLES: _examples,
            TRIPLES: _triples,
            CANDIDATES: self._candidates,
        }
        # the files with each split's groups, and their readers
        sources: dict[str, list[tuple[Path, Callable[[Path], Iterator[Labelled]]]]] = {}
        for kind, reader in readers.items():
            for split, paths in joined_by_split(by_kind[kind]).items() if self.collections or kind != QRELS else ():
                sources.setdefault(split, []).extend((path, reader) for path in paths)
        self.sources = dict(sorted(sources.items()))
        self.by_split = {split: [path for path, _ in files] for split, files in self.sources.items()}
        for split, files in self.by_split.items():  # candidates are labelled by all qrels
            if not set(files).isdisjoint(self.by_kind[CANDIDATES]):
                self.by_split[split] = list({*files, *self.by_kind[QRELS]})

    def _check(self, inputs: Sequence[Path]) -> None:
        """Raise InputError where the files do not belong together."""
        input_names, paths = " ".join(map(str, inputs)), self.by_kind
        other_files = [path for kind, files in paths.items() if kind != TRIPLES for path in files]
        if paths[TRIPLES] and other_files:
            raise InputError(
                f"{paths[TRIPLES][0]}: its texts have no ids, so it cannot be read with {other_files[0]}: "
                "name the files to read, triples.*.tsv without any others"
            )
        if len(self.collections) > 1:
            raise InputError(f"{self.collections[1]}: {self.collections[0]} is a collection already; name one of them")
        if not (paths[TRIPLES] or paths[CANDIDATES] or self.collections):
            raise InputError(f"{input_names}: none of {PASSAGES}, {DOCUMENTS}, {TRIPLES}, {CANDIDATES}, so no texts")
        if paths[CANDIDATES] and not paths[QRELS]:
            raise InputError(f"{paths[CANDIDATES][0]}: name the qrels that judge its queries too, or leave it out")
        without_texts = paths[ID_TRIPLES] + paths[EXAMPLES]
        if without_texts and not self.collections:
            raise InputError(f"{without_texts[0]}: name the collection of its ids too")
        if self.collections and not (paths[QUERIES] or paths[CANDIDATES]):
            raise InputError(f"{input_names}: no {QUERIES}, so no queries")
        if not (paths[QRELS] or without_texts or paths[TRIPLES]):
            raise InputError(f"{input_names}: none of {QRELS}, {ID_TRIPLES}, {EXAMPLES}, so no split")
        for path in paths[CANDIDATES]:  # check this before spending hours on the texts
            if not any(item.labels[0] > 0 for item in self._candidates(path) if not isinstance(item, Unlisted)):
                raise InputError(f"{path}: no candidate is relevant by the qrels (do their ids match?); leave it out")

    def corpus(self) -> Iterator[Text]:
        """Yield the collection, or else the texts of the triples or candidates."""
        for path in self.by_kind[PASSAGES]:
            yield from id_texts(path)
        for path in self.by_kind[DOCUMENTS]:
            for where, (name, url, title, body) in rows(path, ("id", "url", "title", "body")):
                yield _text(name, "url, title and body", f"{title.strip()} {body.strip()}".strip() or url, where)
        for path in self.by_kind[TRIPLES]:
            for where, cells in rows(path, TRIPLE):
                yield from (_unnamed(cells, column, where) for column in (1, 2))
        for path in () if self.collections else self.by_kind[CANDIDATES]:
            for _, name, _, passage, where in _lines(path, texts=True):
                yield _text(name, "passage", passage, where)

    def queries(self) -> Iterator[Text]:
        """Yield the queries of queries.*.tsv, or else of the triples or candidates."""
        for path in self.by_kind[QUERIES]:
            yield from id_texts(path)
        for path in self.by_kind[TRIPLES]:
            yield from (_unnamed(cells, 0, where) for where, cells in rows(path, TRIPLE))
        for path in () if self.by_kind[QUERIES] else self.by_kind[CANDIDATES]:
            for name, _, query, _, where in _lines(path, texts=True):
                yield _text(name, "query", query, where)

    def groups(self, split: str) -> Iterator[Labelled]:
        """Yield the judgements, triples and candidates of a split; at last, what none of its files lists of a query."""
        unlisted: dict[str, Unlisted] = {}
        for path, reader in self.sources[split]:
            for item in reader(path):
                if isinstance(item, Unlisted):
                    unlisted[item.query] = _in_both(unlisted.get(item.query, item), item)
                else:
                    yield item
        yield from unlisted.values()

    def is_mined(self, split: str) -> bool:
        """Return whether a split has triples; the grades of another one must not contradict each other."""
        return split in self.mined_splits

    def _candidates(self, path: Path) -> Iterator[Labelled]:
        """Yield the candidates of judged queries."""
        grades: dict[str, dict[str, float]] = {}
        for query, (document,), (grade,), where, _ in chain.from_iterable(map(judgements, self.by_kind[QRELS])):
            if grades.setdefault(query, {}).setdefault(document, grade) != grade:
                raise InputError(f"{where}: its query and document have another grade on an earlier line")
        unlisted: dict[str, dict[str, float]] = {}
        for query, name, _, _, where in _lines(path):
            if judged := grades.get(query):
                unlisted.setdefault(query, dict(judged)).pop(name, None)
                yield Labelled(query, [name], [judged.get(name, 0)], where)
        for query, judged in unlisted.items():
            yield Unlisted(query, [*judged], [*judged.values()], Where(path, 0))


def _in_both(unlisted: Unlisted, repeat: Unlisted) -> Unlisted:
    labels = dict(zip(unlisted.candidates, unlisted.labels, strict=True))
    names = [name for name in unlisted.candidates if name in repeat.candidates]
    return Unlisted(unlisted.query, names, [labels[name] for name in names], unlisted.where)


def _id_triples(path: Path) -> Iterator[Labelled]:
    for where, (query, positive, negative) in rows(path, ("qid", "positive pid", "negative pid")):
        yield Labelled(query, [positive, negative], [1, 0], where)


def _examples(path: Path) -> Iterator[Labelled]:
    for where, line in text_lines(path):
        try:
            query, *scored = json.loads(line)
            passages, scores = zip(*scored, strict=True)
        except (ValueError, TypeError, RecursionError):
            form = "[qid, [pid, score], [pid, score], ...]"
            raise InputError(f"{where}: not JSON, or not {form}") from None
        teacher = [check_number(score, "score", where) for score in scores]
        yield Labelled(str(query), list(map(str, passages)), [1, *[0] * (len(passages) - 1)], where, teacher)


def _triples(path: Path) -> Iterator[Labelled]:
    for where, cells in rows(path, TRIPLE):
        query, positive, negative = (_unnamed(cells, column, where).id for column in range(3))
        yield Labelled(query, [positive, negative], [1, 0], where)


def _unnamed(cells: Sequence[str], column: int, where: Where) -> Text:
    text = check_text(cells[column], TRIPLE[column], where)
    return Text(content_id(text), [text], where)


def _text(name: str, key: str, text: str, where: Where) -> Text:
    return Text(check_id(name, "id", where), [check_text(text, key, where)], where)


def _lines(path: Path, *, texts: bool = False) -> Iterator[tuple[str, str, str, str, Where]]:
    """Yield the ids and the texts of query and passage of top1000.*; of a run file, unless `texts`, only the ids."""
    for where, line in text_lines(path):
        cells = line.split("\t")
        if len(cells) == 4:
            if not is_header(where, cells):
                yield cells[0], cells[1], cells[2], cells[3], where
            continue
        run = fields(line)
        if len(run) < 6 or run[1].upper() != "Q0":
            forms = "4 between tabs (qid, pid, query, passage), or a run's qid, Q0, pid, rank, score, tag"
            raise InputError(f"{where}: {counted(cells)}, expected {forms}")
        if texts:
            raise InputError(f"{where}: a run has no texts: name the collection and {QUERIES} too")
        yield run[0], run[2], "", "", where
