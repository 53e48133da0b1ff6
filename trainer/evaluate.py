"""Rank a collection with BM25 and trained models and compare them in one table.

python -m trainer.evaluate --collection DIR --split test --bm25 --model NAME=RUN ... --fuse bm25+NAME --out results.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.extras import require
from data_prep.common.files import make_directory, refuse_folder, whole_file
from trainer.checkpoints.load import TrainedModel, load_trained
from trainer.retrieval import bm25, fusion
from trainer.retrieval.metrics import DEPTH, HEADINGS, Metrics, paired_permutation_test, row_title
from trainer.retrieval.system import System
from trainer.retrieval.task import TIE_RULE, Task, embed_task, index_task, matching_of

RESERVED = (  # keys of the results
    "bm25",
    "fused",
    "p_value",
    "p_value_bm25",
    "queries",
    "corpus",
    "collection",
    "split",
    "checkpoints",
    "max_tokens",
    "fusion",
)
ROUNDS = 10_000
FUSE_SPLIT = "dev"
Builders = Mapping[str, Callable[[Task], System]]  # how each system encodes or indexes the texts of a task


class Fusion(NamedTuple):
    """What `--fuse` asks for."""

    systems: tuple[str, str]  # their names
    split: str | None  # where the weight is chosen; None: reciprocal ranks


def compare(
    collection: Collection, split: str, models: Mapping[str, TrainedModel], with_bm25: bool, fuse: Fusion | None = None
) -> dict[str, Any]:
    """Evaluate every system: its mean metrics, the last two models' p-value, and what was ranked, as JSON values.

    Raise InputError for a model that cannot rank the collection, before the first is evaluated.
    """
    methods = {name: matching_of(trained, collection)[1] for name, trained in models.items()}
    builders: Builders = {
        **({"bm25": index_task} if with_bm25 else {}),
        **{name: partial(embed_task, trained) for name, trained in models.items()},
    }
    task = Task.of(collection, split)
    weight = _weight(collection, fuse, builders) if fuse else None
    metrics = _measure(task, builders, fuse, weight)
    p_value = _p_value(metrics, *list(models)[-2:]) if len(models) > 1 else None
    return {
        **{name: measured.means for name, measured in metrics.items()},
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
        **(_about_fusion(fuse, weight, metrics) if fuse else {}),
    }


def _weight(collection: Collection, fuse: Fusion, builders: Builders) -> float | None:
    """The weight of the second system, chosen on another split's own queries and pool; None for reciprocal ranks."""
    if fuse.split is None:
        return None
    task = Task.of(collection, fuse.split)
    first, second = (builders[name](task) for name in fuse.systems)
    return fusion.choose_weight(first, second, task.measure)


def _measure(task: Task, builders: Builders, fuse: Fusion | None, weight: float | None) -> dict[str, Metrics]:
    """The metrics of each system, and last of `fused`; every text is encoded once."""
    metrics: dict[str, Metrics] = {}
    to_fuse: dict[str, System] = {}
    for name, build in builders.items():
        system = build(task)
        metrics[name] = task.measure(system.rank(DEPTH))
        if fuse and name in fuse.systems:
            to_fuse[name] = system
        del system  # the embeddings of one encoder are freed before those of the next are made
    if fuse:
        first, second = (to_fuse[name] for name in fuse.systems)
        (ranked,) = fusion.rank(first, second, [weight], DEPTH)
        metrics["fused"] = task.measure(ranked)
    return metrics


def _about_fusion(fuse: Fusion, weight: float | None, metrics: Mapping[str, Metrics]) -> dict[str, Any]:
    """How the row `fused` was made, and its p-value against BM25 where that is one of the two, as JSON values."""
    rule = "reciprocal ranks" if weight is None else "standardised"
    return {
        "p_value_bm25": _p_value(metrics, "bm25", "fused") if "bm25" in fuse.systems else None,
        "fusion": {"systems": list(fuse.systems), "rule": rule, "weight": weight, "split": fuse.split},
    }


def _p_value(metrics: Mapping[str, Metrics], first: str, second: str) -> float:
    return paired_permutation_test(metrics[second].values["mrr@10"], metrics[first].values["mrr@10"], ROUNDS)


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
        fuse = _fusion(arguments, collection, [*(["bm25"] if arguments.bm25 else []), *runs])
        refuse_folder(arguments.out)
        make_directory(arguments.out.parent)
        models = {name: load_trained(run) for name, run in runs.items()}
        results = compare(collection, arguments.split, models, arguments.bm25, fuse)
        print("\n".join(table(results, list(runs))))
        with whole_file(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


def table(results: Mapping[str, Any], models: Sequence[str]) -> Iterator[str]:
    """The lines of the table, and the conditions that it was measured under."""
    titles = {name: row_title(name, results) for name in ("bm25", *models, "fused") if name in results}
    width = max(map(len, titles.values()))
    yield " " * width + "".join(f"  {heading:>10}" for heading in HEADINGS.values())
    for name, title in titles.items():
        yield f"{title:<{width}}" + "".join(f"  {results[name][metric]:>10.4f}" for metric in HEADINGS)
    if results["p_value"] is not None:
        first, second = models[-2:]
        yield _comparison(results, first, second, "p_value")
    if results.get("p_value_bm25") is not None:
        yield _comparison(results, "bm25", "fused", "p_value_bm25")
    if "fusion" in results:
        yield _fusion_rule(results)
    yield f"{results['queries']:,} queries over {results['corpus']:,} documents; {TIE_RULE}; every judged query counts"
    if results["max_tokens"]:
        yield _truncation(results)
    if "bm25" in results:
        yield bm25.DESCRIPTION


def _comparison(results: Mapping[str, Any], first: str, second: str, p_value: str) -> str:
    """Two systems' MRR@10 and the p-value of their difference, which has the key `p_value`, in one line."""
    ours, theirs = (f"{row_title(name, results)} {results[name]['mrr@10']:.4f}" for name in (second, first))
    test = f"p = {results[p_value]:.4f} (paired permutation test, two-sided, {ROUNDS:,} flips)"
    return f"MRR@10: {ours} against {theirs}, {test}"


def _fusion_rule(results: Mapping[str, Any]) -> str:
    """How the fused row was made, in one line."""
    how = results["fusion"]
    first, second = (row_title(name, results) for name in how["systems"])
    if how["weight"] is None:
        rule = f"reciprocal ranks, the sum of 1 / ({fusion.RANK_OFFSET} + rank)"
        why = f"no split {FUSE_SPLIT} other than the evaluated one to choose a weight on"
        return f"{row_title('fused', results)}: {rule}; {why}"
    weights = f"{1 - how['weight']:.1f} {first} + {how['weight']:.1f} {second}"
    return (
        f"{row_title('fused', results)}: {weights}, scores standardised per query; "
        f"weight chosen by nDCG@10 on split {how['split']}"
    )


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


def _fusion(arguments: argparse.Namespace, collection: Collection, names: Sequence[str]) -> Fusion | None:
    """Parse `--fuse` and `--fuse-split`; `names` are the systems that are evaluated."""
    if arguments.fuse is None:
        if arguments.fuse_split is not None:
            raise InputError(f"--fuse-split {arguments.fuse_split}: give --fuse NAME+NAME, too, or leave it out")
        return None
    # a name may contain a plus
    pairs = [(a, b) for a in names for b in names if a != b and f"{a}+{b}" == arguments.fuse]
    if not pairs:
        raise InputError(
            f"--fuse {arguments.fuse}: write two different systems of this command as NAME+NAME; "
            f"it has {', '.join(names)}{'' if 'bm25' in names else ' (bm25 needs --bm25)'}"
        )
    split = arguments.fuse_split
    if split is None and FUSE_SPLIT in collection.splits() and arguments.split != FUSE_SPLIT:
        split = FUSE_SPLIT
    elif split == arguments.split:
        raise InputError(
            f"--fuse-split {split}: the weight would be chosen on the queries that it is evaluated on: "
            "name another split, or leave it out"
        )
    if split is not None:
        Task.of(collection, split)  # refuse a wrong one
    return Fusion(pairs[0], split)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Rank a collection; compare in one table.")
    parser.add_argument("--collection", type=Path, required=True, help="a tokenised BEIR folder")
    parser.add_argument("--split", required=True, help="the queries to rank for: qrels/SPLIT.tsv")
    parser.add_argument("--bm25", action="store_true", help="also rank with BM25")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=RUN", help="a fine-tuning run; may be repeated"
    )
    parser.add_argument(
        "--fuse", metavar="NAME+NAME", help="also rank with two of these systems as one, such as bm25+NAME"
    )
    parser.add_argument(
        "--fuse-split",
        metavar="SPLIT",
        help=f"the split to choose the weight of --fuse on; by default {FUSE_SPLIT}, and reciprocal ranks, which need "
        "no weight, where there is no such split or it is the evaluated one",
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file for the results")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
