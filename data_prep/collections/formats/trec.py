"""TREC: documents, topics and qrels, found by their names in a folder or among files.

corpus.jsonl    {"id": ..., "title": ..., "contents": ...} a line; id may also be named _id, docid, doc_id or docno, and
                contents text; a title, if there is one, is put before the contents, with a space
corpus.tsv      or id TAB text; a name may also begin with collection, docs or documents; files are joined
topics.*.tsv    id TAB text; or queries.*.tsv; all such files are one table
qrels.SPLIT.*   query 0 document grade, or without the 0, between tabs or spaces; a grade above 0 is relevant

`qrels.dev.txt` is the split `dev`, `qrels.txt` is `train`; SPLIT=FILE gives another name. TREC's SGML is not read.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from deepsiam.data_prep.collections.files.named_files import joined_by_split, named_files
from deepsiam.data_prep.collections.files.tsv import id_texts, judgements
from deepsiam.data_prep.collections.format import Format, Labelled, Text, check_id, is_json, json_lines, titled_text
from deepsiam.data_prep.common.errors import InputError

CORPUS, TOPICS, QRELS = "corpus.jsonl or .tsv", "topics.*.tsv", "qrels.*"
KINDS = {
    QRELS: r".*qrels.*(?<!\.tar)",
    TOPICS: r".*(topics|queries).*\.(tsv|txt)",
    CORPUS: r"(corpus|collection|docs|documents).*\.(jsonl?|tsv|txt)",
}
IDS = ("id", "_id", "docid", "doc_id", "docno")
TEXTS = ("contents", "text")


class Trec(Format):
    """A test collection in TREC's layout."""

    summary = f"a TREC test collection: {CORPUS}, {TOPICS}, {QRELS}, or a folder of them"
    repeats = "queries"

    def __init__(self, inputs: Sequence[Path]) -> None:
        by_kind = named_files(inputs, KINDS, "qrels")
        for kind, files in by_kind.items():
            if not files:
                raise InputError(f"{' '.join(map(str, inputs))}: no file is named {kind}")
        self.paths = [file.path for files in by_kind.values() for file in files]
        files_by_part = {"corpus": by_kind[CORPUS], "queries": by_kind[TOPICS]}
        self.by_part = {part: [file.path for file in files] for part, files in files_by_part.items()}
        self.by_split = dict(sorted(joined_by_split(by_kind[QRELS]).items()))

    def corpus(self) -> Iterator[Text]:
        for path in self.by_part["corpus"]:
            if not is_json(path):
                yield from id_texts(path)
                continue
            for where, record in json_lines(path):
                key = next((key for key in IDS if key in record), IDS[0])
                yield Text(check_id(record.get(key), key, where), [titled_text(record, TEXTS, where)], where)

    def queries(self) -> Iterator[Text]:
        return chain.from_iterable(map(id_texts, self.by_part["queries"]))

    def groups(self, split: str) -> Iterator[Labelled]:
        return chain.from_iterable(map(judgements, self.by_split[split]))
