"""Rank a collection with BM25 and trained models and compare them in one table.

python -m trainer.evaluate --collection DIR --split test --bm25 --model NAME=RUN ... --out results.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from data_prep.collection import Collection
from data_prep.errors import InputError, exit_on_input_error
from data_prep.files import make_directory, refuse_folder, whole_file
from models.siamese import Siamese
from trainer import bm25, method_keys
from trainer.extras import require
from trainer.methods import vocabulary_of
from trainer.metrics import DEPTH, HEADINGS, Metrics, measure, paired_permutation_test
from trainer.retrieval import TIE_RULE, encode_texts, search
from trainer.trained import Trained, load

TAKEN = ("bm25", "p_value", "queries", "corpus", "collection", "split", "checkpoints")  # keys of the results
ROUNDS = 10_000


@dataclass(frozen=True)
class Task:
    """What is ranked: the judged queries of a split, and its pool of documents in corpus order."""

    collection: Collection
    qrels: dict[str, dict[str, int]]
    queries: list[int]  # positions in collection.queries, in the order of qrels
    pool: list[int]  # positions in collection.corpus, ascending

    @classmethod
    def of(cls, collection: Collection, split: str) -> Task:
        """The task that a split sets; InputError where there is no such split or its pool is empty."""
        qrels = collection.qrels(split)
        pool = sorted(collection.corpus.index[document] for document in collection.pool(split))
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        return cls(collection, qrels, [collection.queries.index[query] for query in qrels], pool)

    def measure(self, ranked: Sequence[Sequence[int]]) -> Metrics:
        """The metrics of rankings, one a query, given as positions in the pool."""
        names = self.collection.corpus.ids
        named = ([names[self.pool[i]] for i in documents] for documents in ranked)
        return measure(self.qrels, dict(zip(self.qrels, named, strict=True)))


def evaluate_run(trained: Trained, collection: Collection, split: str) -> Metrics:
    """The metrics of a fine-tuned model on a split, by exact search over the split's pool.

    Raises:
        InputError: the model was not fine-tuned, or its tokenizer is not the collection's.
    """
    model, method = siamese_of(trained, collection)
    task, vocabulary = Task.of(collection, split), vocabulary_of(trained.tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    queries = (collection.queries.tokens(i) for i in task.queries)
    documents = (collection.corpus.tokens(i) for i in task.pool)
    encoded_queries = encode_texts(
        model, queries, vocabulary, method.max_query_tokens, what="encode queries", device=device
    )
    encoded_documents = encode_texts(
        model, documents, vocabulary, method.max_document_tokens, what="encode documents", device=device
    )
    return task.measure(search(encoded_queries, encoded_documents, DEPTH).documents.tolist())


def evaluate_bm25(collection: Collection, split: str) -> Metrics:
    """The metrics of BM25 on a split, over the same pool under the same rules."""
    task = Task.of(collection, split)
    queries, documents = collection.query_texts(), collection.corpus_texts()
    ranked = bm25.rank([queries[i] for i in task.queries], [documents[i] for i in task.pool], DEPTH)
    return task.measure(ranked)


def siamese_of(trained: Trained, collection: Collection) -> tuple[Siamese, method_keys.Siamese]:
    """The model and its method's settings; refuses what cannot rank this collection."""
    model, method = trained.model, trained.recipe.method
    if not (isinstance(model, Siamese) and isinstance(method, method_keys.Siamese)):
        raise InputError(
            f"{trained.checkpoint}: a {trained.kind} pre-training run, which has learned no similarity: fine-tune it "
            f"first (deepspeed --module trainer.finetune RECIPE init_from={trained.recipe.run})"
        )
    if trained.tokenizer.fingerprint != collection.tokenizer.fingerprint:
        raise InputError(
            f"{collection.directory}: tokenised with another tokenizer than {trained.checkpoint}: run python -m "
            f"data_prep collection {collection.directory} --tokenizer {trained.tokenizer.path}"
        )
    return model, method


def compare(collection: Collection, split: str, models: Mapping[str, Trained], with_bm25: bool) -> dict[str, Any]:
    """The results, as they go to the file: each system's means, the last two models' p-value, and what was ranked."""
    systems = {"bm25": evaluate_bm25(collection, split)} if with_bm25 else {}
    systems |= {name: evaluate_run(trained, collection, split) for name, trained in models.items()}
    p_value = None
    if len(models) > 1:
        first, second = (systems[name].values["mrr@10"] for name in list(models)[-2:])
        p_value = paired_permutation_test(second, first, ROUNDS)
    task = Task.of(collection, split)
    return {
        **{name: metrics.means for name, metrics in systems.items()},
        "p_value": p_value,
        "queries": len(task.queries),
        "corpus": len(task.pool),
        "collection": str(collection.directory),
        "split": split,
        "checkpoints": {name: str(trained.checkpoint) for name, trained in models.items()},
    }


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.evaluate"):
        require("bm25s", "ir_measures", "pytrec_eval")
        runs = _runs(arguments.model)
        if not runs and not arguments.bm25:
            raise InputError("nothing to evaluate: give --bm25, --model NAME=RUN, or both")
        collection = Collection.open(arguments.collection)
        Task.of(collection, arguments.split)  # a wrong split is said before any model is loaded
        refuse_folder(arguments.out)
        make_directory(arguments.out.parent)
        results = compare(collection, arguments.split, _load(runs, collection), arguments.bm25)
        print("\n".join(table(results, list(runs))))
        with whole_file(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


def table(results: Mapping[str, Any], models: Sequence[str]) -> Iterator[str]:
    """The lines of the table, and what must be known to read it."""
    labels = ({"bm25": "BM25"} if "bm25" in results else {}) | {name: name for name in models}
    width = max(map(len, labels.values()))
    yield " " * width + "".join(f"  {heading:>10}" for heading in HEADINGS.values())
    for name, label in labels.items():
        yield f"{label:<{width}}" + "".join(f"  {results[name][metric]:>10.4f}" for metric in HEADINGS)
    if results["p_value"] is not None:
        first, second = models[-2:]
        means = f"{second} {results[second]['mrr@10']:.4f} against {first} {results[first]['mrr@10']:.4f}"
        yield f"MRR@10: {means}, p = {results['p_value']:.4f} (paired permutation test, two-sided, {ROUNDS:,} flips)"
    yield f"{results['queries']:,} queries over {results['corpus']:,} documents; {TIE_RULE}; every judged query counts"
    if "bm25" in results:
        yield bm25.DESCRIPTION


def _runs(given: Sequence[str]) -> dict[str, Path]:
    """NAME=RUN arguments."""
    runs: dict[str, Path] = {}
    for argument in given:
        name, equals, run = argument.partition("=")
        if not (name and equals and run):
            raise InputError(f"--model {argument}: write --model NAME=RUN")
        if name in TAKEN or name in runs:
            raise InputError(f"--model {argument}: the name {name!r} is taken: choose another")
        runs[name] = Path(run)
    return runs


def _load(runs: Mapping[str, Path], collection: Collection) -> dict[str, Trained]:
    """Every run's model, each checked before the first is evaluated."""
    models = {name: load(run) for name, run in runs.items()}
    for trained in models.values():
        siamese_of(trained, collection)
    return models


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Rank a collection; compare in one table.")
    parser.add_argument("--collection", type=Path, required=True, help="a tokenised BEIR folder")
    parser.add_argument("--split", required=True, help="the judgements to rank for: qrels/SPLIT.tsv")
    parser.add_argument("--bm25", action="store_true", help="rank with BM25 too")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=RUN", help="a fine-tuning run; may be repeated"
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file for the results")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
