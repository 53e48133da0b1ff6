"""Ask a model for queries of a collection's documents, in blocks, and make a collection of those that pass the checks.

A stopped command resumes: OUT.asked/NNNNNN.json holds what the model wrote about a block of documents, in order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepsiam.data_prep.collections.collection import SPLITS, Collection
from deepsiam.data_prep.collections.derive import NewQuery, require_room, with_queries
from deepsiam.data_prep.collections.format import Text, Where
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes, require_name, write_bytes
from deepsiam.data_prep.common.json_file import parse_json
from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.asking.checks import REASONS, line_of, query_of, reason_against, words_of
from deepsiam.trainer.ranking.asking.prompts import Prompt, open_prompts, record
from deepsiam.trainer.ranking.asking.writer import DOCUMENT_TOKENS, Answer, Request, Writer
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, wait_for
from deepsiam.trainer.ranking.server import Server
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say

TRAIN, TEST = "train", "test"
SHOWN = 20  # queries of each kind
LARGEST_BLOCK = 1 << 30  # bytes of a file of answers
INPUTS = "collection, model, prompt, --precision, --seed or another option"


class Query(NamedTuple):
    """A query that is written for a document."""

    text: str
    kind: str
    document: int
    number: int  # of those of its kind and document
    reason: str | None  # why it is left out, a key of `REASONS`


class Asking(NamedTuple):
    """What is asked about which documents."""

    collection: Collection
    prompts: Sequence[Prompt]
    per_document: int
    seed: int
    documents: Sequence[int]  # numbers, ascending
    held_out: frozenset[int]  # those of the documents whose queries are the split test

    def blocks(self, size: int) -> list[Sequence[int]]:
        """Return the documents of each block."""
        return [self.documents[i : i + size] for i in range(0, len(self.documents), size)]

    def requests(self, documents: Sequence[int]) -> list[Request]:
        """Return what is asked about some documents: of each all kinds, of each kind all numbers."""
        texts = {i: self.collection.corpus.text(i) for i in documents}
        keys = {i: _hash(text, self.seed) for i, text in texts.items()}
        return [
            Request(prompt, texts[i], (self.seed, keys[i], number))
            for i in documents
            for prompt in self.prompts
            for number in range(self.per_document)
        ]


def ask(arguments: argparse.Namespace) -> None:
    """Make what the arguments of `trainer.ask` choose; print what was made."""
    require_name(arguments.out)
    with failed_rank_exits_first():
        world = joined()
        with rank_0_speaks(world.rank):
            with rank_0_first(world.rank, world.size):
                asking = _opened(arguments)
                writer = _writer(arguments, asking.prompts)
                about = {**writer.about, **_about(asking, arguments)}
                folder = arguments.out.with_name(f"{arguments.out.name}.asked")
                made_of = {**about, "collection": asking.collection.sha256, "block": writer.block}
                if world.rank == 0:
                    open_work_folder(folder, made_of, INPUTS)
            files = _write(asking, writer, folder, world.rank, world.size)
    if world.rank == 0:
        queries = _Queries(asking, writer.block, files)
        derived = with_queries(asking.collection, arguments.out, queries.passed(), {"written_by": about})
        shutil.rmtree(folder)
        say(*queries.lines(), *(queries.shown if arguments.show else []))
        splits = [f"{number:,} queries in {split}" for split, number in derived.manifest["counts"][SPLITS].items()]
        say(f"wrote {derived.directory}: the same documents; {' and '.join(splits)}")


def _opened(arguments: argparse.Namespace) -> Asking:
    prompts = open_prompts(arguments.kinds, arguments.prompt, arguments.examples)
    collection = Collection.open(arguments.collection)
    require_room(collection, arguments.out)
    documents = _with_words(collection)
    if arguments.documents:
        documents = _drawn(collection, documents, arguments.documents, arguments.seed)
    held_out = _drawn(collection, documents, arguments.held_out, ~arguments.seed) if arguments.held_out else []
    if len(held_out) == len(documents):
        raise InputError(f"--held-out {arguments.held_out} leaves nothing of {len(documents):,} documents: lower it")
    return Asking(collection, prompts, arguments.per_document, arguments.seed, documents, frozenset(held_out))


def _writer(arguments: argparse.Namespace, prompts: Sequence[Prompt]) -> Writer:
    limit = arguments.document_tokens or DOCUMENT_TOKENS
    if arguments.server:
        from deepsiam.trainer.ranking.asking.served_model import ServedModel

        server = Server(arguments.server, str(arguments.model), arguments.timeout)
        return ServedModel(server, arguments.temperature, limit)
    from deepsiam.trainer.ranking.asking.language_model import LanguageModel

    model = LanguageModel(arguments.model, arguments.precision, arguments.temperature, limit)
    model.check(prompts)
    return model


def _about(asking: Asking, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "kinds": [prompt.kind for prompt in asking.prompts],
        "prompts": record(asking.prompts),
        "seed": asking.seed,
        "documents": arguments.documents,
        "held_out": arguments.held_out,
        "per_document": asking.per_document,
    }


def _with_words(collection: Collection) -> list[int]:
    """Return the numbers of the documents that can be asked about: of those with the same text, the first.

    Asked again, a model would write the same, and a copy could be in the other split.
    """
    corpus = collection.corpus
    with_words = [i for i in range(len(corpus)) if len(corpus.tokens(i)) and words_of(corpus.text(i))]
    if not with_words:
        raise InputError(f"{collection.directory}: no document has words to ask about")
    hashes = np.fromiter((_hash(corpus.text(i), 0) for i in with_words), np.int64, len(with_words))
    firsts = np.sort(np.unique(hashes, return_index=True)[1])
    return np.array(with_words)[firsts].tolist()


def _drawn(collection: Collection, documents: Sequence[int], number: int, seed: int) -> list[int]:
    """Return those of the documents with the lowest hashes, so that more documents contain fewer; in their order."""
    hashes = np.array([_hash(collection.corpus.text(i), seed) for i in documents])
    return np.sort(np.array(documents)[np.argsort(hashes, kind="stable")[:number]]).tolist()


def _hash(text: str, seed: int) -> int:
    """Return 63 bits that depend on a text and the seed."""
    digest = hashlib.blake2b(struct.pack("<q", seed) + text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _write(asking: Asking, writer: Writer, folder: Path, rank: int, ranks: int) -> list[Path]:
    """Write what is missing of the blocks, each rank its share; return the files of all."""
    blocks = asking.blocks(writer.block)
    files = [folder / f"{i:06d}.json" for i in range(len(blocks))]
    wait_for(ranks)  # the folder is there
    missing = [i for i, file in enumerate(files) if not file.is_file()]
    wait_for(ranks)  # all have looked
    mine = missing[rank::ranks]
    per_document = len(asking.prompts) * asking.per_document
    with meter("ask", "queries", per_document * sum(len(blocks[i]) for i in mine)) as report:
        before = 0

        def tell(number: int) -> None:
            report(before + number, "")

        for i in mine:
            answers = writer.write(asking.requests(blocks[i]), tell)
            write_bytes(files[i], json.dumps(answers).encode())
            before += len(answers)
    wait_for(ranks)
    return files


class _Queries:
    """The queries of all answers; counted as they are read."""

    def __init__(self, asking: Asking, block: int, files: Sequence[Path]) -> None:
        self.asking, self.files = asking, files
        self.blocks = asking.blocks(block)
        self.examples = {words_of(example.query) for prompt in asking.prompts for example in prompt.examples}
        self.left_out = Counter[str]()
        self.cut = self.asked = 0
        self.first = defaultdict[str, list[str]](list)  # of each kind

    def passed(self) -> Iterator[NewQuery]:
        """Yield the queries that pass the checks; raise InputError where a split has none."""
        corpus, number_each = self.asking.collection.corpus, self.asking.per_document > 1
        passed = Counter[str]()
        for query in self._all():
            self.asked += 1
            if query.reason:
                self.left_out[query.reason] += 1
                continue
            split = TEST if query.document in self.asking.held_out else TRAIN
            passed[split] += 1
            name = corpus.ids[query.document]
            if len(self.first[query.kind]) < SHOWN:
                self.first[query.kind].append(f"{query.kind} of {name}: {query.text}")
            number = f"-{query.number}" if number_each else ""
            text = Text(f"{query.kind}-{name}{number}", [query.text], Where(self.files[0], 0))
            yield NewQuery(text, query.document, split)
        for split in (TRAIN, *([TEST] if self.asking.held_out else [])):
            if not passed[split]:
                left_out = f"{self.lines()[-1]}: no query is left in {split}; try another prompt or model"
                raise InputError(f"{self.files[0].parent}: {left_out}")

    def _all(self) -> Iterator[Query]:
        written = set[int]()  # hashes of the words
        for file, documents in zip(self.files, self.blocks, strict=True):
            damaged = "is damaged: remove it, and run the command again"
            answers = parse_json(read_bytes(file, LARGEST_BLOCK), file, list[Answer], damaged)
            requests = self.asking.requests(documents)
            if len(answers) != len(requests):
                raise InputError(f"{file}: {damaged}")
            for i, (answer, request) in enumerate(zip(answers, requests, strict=True)):
                self.cut += answer.is_cut
                line, has_ended = line_of(answer.text)
                text, is_whole = query_of(line), answer.is_whole or has_ended
                reason = reason_against(text, request.document, is_whole, self.examples)
                if not reason:
                    key = _hash(" ".join(words_of(text)), 0)
                    reason = "duplicate" if key in written else None
                    written.add(key)
                document = documents[i * len(documents) // len(requests)]
                yield Query(text, request.prompt.kind, document, request.key[-1], reason)

    def lines(self) -> list[str]:
        """Return what was read and left out, once all is read."""
        number = self.asked - self.left_out.total()
        reasons = ", ".join(f"{self.left_out[key]:,} {words}" for key, words in REASONS.items() if self.left_out[key])
        read = f"{len(self.asking.documents):,} documents"
        cut = f", of which the model reads the beginning for {self.cut:,} queries" if self.cut else ""
        return [f"{read}{cut}", f"{self.asked:,} queries asked for, {number:,} kept; left out: {reasons or 'none'}"]

    @property
    def shown(self) -> list[str]:
        """The first queries of each kind."""
        return [line for lines in self.first.values() for line in lines]
