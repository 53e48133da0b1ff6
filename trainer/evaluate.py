"""Rank a collection with BM25 and trained models and compare them in one table.

python -m trainer.evaluate --collection DIR --split test --bm25 --model NAME=RUN ... --out results.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.extras import require
from data_prep.common.files import make_directory, refuse_folder, whole_file
from trainer.checkpoints.load import TrainedModel, load_trained
from trainer.retrieval import bm25
from trainer.retrieval.metrics import HEADINGS, paired_permutation_test
from trainer.retrieval.task import TIE_RULE, Task, evaluate_bm25, evaluate_run, matching_of

RESERVED = (  # keys of the results
    "bm25",
    "p_value",
    "queries",
    "corpus",
    "collection",
    "split",
    "checkpoints",
    "max_tokens",
)
ROUNDS = 10_000


def compare(collection: Collection, split: str, models: Mapping[str, TrainedModel], with_bm25: bool) -> dict[str, Any]:
    """Evaluate every system: its mean metrics, the last two models' p-value, and what was ranked, as JSON values.

    Raise InputError for a model that cannot rank the collection, before the first is evaluated.
    """
    methods = {name: matching_of(trained, collection)[1] for name, trained in models.items()}
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
        "max_tokens": {
            name: {"query": method.max_query_tokens, "document": method.max_document_tokens}
            for name, method in methods.items()
        },
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.evaluate"):
        require("evaluate", "bm25s", "ir_measures", "pytrec_eval")
        runs = _runs(arguments.model)
        if not runs and not arguments.bm25:
            raise InputError("nothing to evaluate: give --bm25, --model NAME=RUN, or both")
        collection = Collection.open(arguments.collection)
        Task.of(collection, arguments.split)  # refuse a wrong split before loading a model
        refuse_folder(arguments.out)
        make_directory(arguments.out.parent)
        models = {name: load_trained(run) for name, run in runs.items()}
        results = compare(collection, arguments.split, models, arguments.bm25)
        print("\n".join(table(results, list(runs))))
        with whole_file(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


def table(results: Mapping[str, Any], models: Sequence[str]) -> Iterator[str]:
    """The lines of the table, and the conditions that it was measured under."""
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
    if results["max_tokens"]:
        yield _truncation(results)
    if "bm25" in results:
        yield bm25.DESCRIPTION


def _truncation(results: Mapping[str, Any]) -> str:
    """How much of a text each system reads, in one line."""
    names: dict[str, list[str]] = {}
    for name, most in results["max_tokens"].items():
        names.setdefault(f"{most['query']}/{most['document']}", []).append(name)
    if len(names) == 1:
        (limits,) = names
        encoders = f"encoders read the first {limits} tokens of queries/documents"
    else:
        each = ", ".join(f"{limits} ({' and '.join(same)})" for limits, same in names.items())
        encoders = f"encoders read the first tokens of queries/documents: {each}"
    return encoders + (", BM25 reads all of them" if "bm25" in results else "")


def _runs(given: Sequence[str]) -> dict[str, Path]:
    """Parse the NAME=RUN arguments: run folders by name."""
    runs: dict[str, Path] = {}
    for argument in given:
        name, equals, run = argument.partition("=")
        if not (name and equals and run):
            raise InputError(f"--model {argument}: write --model NAME=RUN")
        if name in RESERVED or name in runs:
            raise InputError(f"--model {argument}: the name {name!r} is taken: choose another")
        runs[name] = Path(run)
    return runs


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Rank a collection; compare in one table.")
    parser.add_argument("--collection", type=Path, required=True, help="a tokenised BEIR folder")
    parser.add_argument("--split", required=True, help="the queries to rank for: qrels/SPLIT.tsv")
    parser.add_argument("--bm25", action="store_true", help="also rank with BM25")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=RUN", help="a fine-tuning run; may be repeated"
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file for the results")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
