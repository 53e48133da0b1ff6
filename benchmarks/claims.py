"""Test the papers' claims at a size that two cores can compute: only the method differs.

    python -m benchmarks.claims [--methods mlm seed ...] [--seeds N] [--tokens N] [--out FOLDER]     (after make demo)

Every method pre-trains the same trunk (recipes/*_small.yaml) on the same mix of text until it has read N tokens, and
each encoder is fine-tuned by the same recipe: on docstrings, and evaluated on held-out packages; and on one half of the
queries of Cranfield and Vaswani together, and evaluated on the other half, and the other way round. All of this is
repeated with every seed, of pre-training and of fine-tuning. A method's number is the mean MRR@10 over the seeds; its
interval is that of 95 % of bootstrap samples of the queries, and p is of a paired permutation test against the masked
LM, each query's values averaged over the seeds. Goes on where it was stopped; writes the tables again after every seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import claims_material as material
from benchmarks.measurements import Measurements
from benchmarks.training import file_name, tokens_a_step, train
from data_prep.collections.collection import Collection
from data_prep.common.argument_types import positive
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.files import make_directory, whole_file
from trainer.checkpoints.load import load_trained
from trainer.recipe.schema import PretrainRecipe
from trainer.recipe.yaml_file import load as load_recipe
from trainer.retrieval.metrics import paired_permutation_test
from trainer.retrieval.task import evaluate_bm25, evaluate_run

AGAINST, RANDOM = "mlm", "random"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # name: recipe, and its changed keys
    RANDOM: ("mlm_small", {}),  # the trunk of the masked LM with random weights
    "mlm": ("mlm_small", {}),
    "seed": ("seed_small", {}),
    "seed, strong decoder": ("seed_small", {"method.decoder_layers": 5, "method.window": "all"}),
    "cross_thought": ("cross_thought_small", {}),
    "ict": ("ict_small", {}),
    "poly": ("poly_small", {}),
    "poly, Reddit": ("poly_small", {"method.pairs": "utterances"}),
    "clm": ("clm_small", {}),
    "skip_thought": ("skip_thought_small", {}),
    "retromae": ("retromae_small", {}),
    "condenser": ("condenser_small", {}),
}
MIXED = ("docstrings", "wikipedia", "bookcorpus")  # in equal shares
READS = {"poly, Reddit": ("reddit",)}  # methods that read something else
TUNING: dict[str, dict[str, Any]] = {  # how a method's encoder is pooled, where not by [CLS]
    "clm": {"method.pooling": "last"},
    "cross_thought": {"method.special_tokens": 5},
}
DOCSTRINGS = {"data.pairs": 1500, "steps": 120}
CLASSIC = {"data.pairs": "null", "steps": 60, "optimizer.warmup_steps": 6}
COLLECTIONS = ("docstrings", *material.CLASSIC)

Values = dict[str, list[float]]  # MRR@10 of every query, by collection


@dataclass
class Bench:
    """The text, the collections, the folder of the runs, and the measurements so far."""

    shards: Mapping[str, Path]
    docstrings: Collection
    classic: Collection
    out: Path
    tokens: int

    def __post_init__(self) -> None:
        self.runs = self.out / f"{self.tokens}-tokens"
        self.measurements = Measurements[Values](self.out / "claims.json")

    def measured(self, name: str, seed: int) -> Values:
        """MRR@10 of every query after fine-tuning a method's encoder, both with one seed."""
        return self.measurements.get(f"{name} {seed} {self.tokens}", lambda: self._measure(name, seed))

    def bm25(self) -> Values:
        """MRR@10 of every query by BM25."""
        values = {"docstrings": _mrr(evaluate_bm25(self.docstrings, "test"))}
        for name in material.CLASSIC:
            folds = [_mrr(evaluate_bm25(self.classic, f"{name}-{fold}")) for fold in material.FOLDS]
            values[name] = [value for fold in folds for value in fold]
        return values

    def _measure(self, name: str, seed: int) -> Values:
        start = self._pretrained(AGAINST if name == RANDOM else name, seed)
        settings = {"data.collection": self.docstrings.directory, **DOCSTRINGS}
        run = self._tuned(name, seed, start, "docstrings", settings)
        values = {"docstrings": _mrr(evaluate_run(load_trained(run), self.docstrings, "test"))}
        for fold, other in zip(material.FOLDS, reversed(material.FOLDS), strict=True):
            settings = {"data.collection": self.classic.directory, "data.split": other, **CLASSIC}
            tuned = load_trained(self._tuned(name, seed, start, f"classic-{other}", settings))
            for collection in material.CLASSIC:
                ranked = _mrr(evaluate_run(tuned, self.classic, f"{collection}-{fold}"))
                values.setdefault(collection, []).extend(ranked)
        means = ", ".join(f"{collection} {np.mean(mrr):.4f}" for collection, mrr in values.items())
        print(f"{name}, seed {seed}: MRR@10 of {means}", flush=True)
        return values

    def _tuned(self, name: str, seed: int, start: Path, what: str, settings: Mapping[str, Any]) -> Path:
        run = self.runs / "tuned" / f"{file_name(name)}-{seed}-{what}"
        weights = {"init_from": start, "random_weights": str(name == RANDOM).lower(), "seed": seed}
        train("trainer.finetune", "recipes/demo_siamese.yaml", run, {**weights, **settings, **TUNING.get(name, {})})
        return run

    def _pretrained(self, name: str, seed: int) -> Path:
        recipe, changes = METHODS[name]
        mix = {source: {"shards": str(self.shards[source]), "weight": 1} for source in READS.get(name, MIXED)}
        settings = {**changes, "data.shards": "null", "data.mix": mix, "seed": seed}
        resolved = load_recipe(
            PretrainRecipe, Path(f"recipes/{recipe}.yaml"), [f"{k}={v}" for k, v in settings.items()]
        )
        steps = math.ceil(self.tokens / tokens_a_step(resolved))
        run = self.runs / f"{file_name(name)}-{seed}"
        settings |= {"steps": steps, "checkpoint.every": steps}
        train("trainer.pretrain", f"recipes/{recipe}.yaml", run, settings)
        return run


def _mrr(metrics: Any) -> list[float]:
    return [float(value) for value in metrics.values["mrr@10"]]


def interval(values: np.ndarray, rounds: int = 10_000) -> tuple[float, float]:
    """The interval of the means of 95 % of bootstrap samples of values fp64 [Q]."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(rounds)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def table(measured: Mapping[str, np.ndarray], bm25: float) -> str:
    """Write a Markdown table of fp64 [seeds, queries] by method: a row a method, best first."""
    against = measured[AGAINST].mean(0) if AGAINST in measured else None
    head = "| method | MRR@10 | 95 % interval, bootstrap over queries | by seed | p against the masked LM |"
    lines = [head, "|---" * 5 + "|"]
    for name, values in sorted(measured.items(), key=lambda item: -item[1].mean()):
        queries = values.mean(0)
        low, high = interval(queries)
        seeds = ", ".join(f"{value:.4f}" for value in values.mean(1))
        p = "" if against is None or name == AGAINST else f"{paired_permutation_test(queries, against, 10_000):.4f}"
        lines.append(f"| {name} | {queries.mean():.4f} | {low:.4f} to {high:.4f} | {seeds} | {p} |")
    return "\n".join([*lines, f"| BM25 | {bm25:.4f} | | | |"])


def report(measured: Mapping[str, Sequence[Values]], bm25: Values) -> str:
    """Write a table for each collection; `measured` has the values of each seed by method."""
    tables = []
    for collection in COLLECTIONS:
        values = {name: np.array([values[collection] for values in seeds]) for name, seeds in measured.items()}
        queries = f"{len(bm25[collection]):,} queries"
        tables.append(f"{collection}, {queries}\n\n{table(values, float(np.mean(bm25[collection])))}")
    return "\n\n".join(tables)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS)[:8], metavar="NAME")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="(3)")
    parser.add_argument("--tokens", type=positive, default=2_000_000, help="read in pre-training (2,000,000)")
    material.add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims"):
        if not chosen.data.is_dir():
            raise InputError(f"{chosen.data}: no such folder; name one with wiki, books, reddit and {material.CLASSIC}")
        make_directory(chosen.out)
        shards = material.text(chosen.data, chosen.out / "data")
        docstrings = Collection.open(material.DOCSTRINGS / "collection")
        classic = Collection.open(material.classic(chosen.data, chosen.out / "data"))
        bench = Bench(shards, docstrings, classic, chosen.out, chosen.tokens)
        measured: dict[str, list[Values]] = {name: [] for name in chosen.methods}
        for seed in range(1, chosen.seeds + 1):
            for name, values in measured.items():
                values.append(bench.measured(name, seed))
            tables = report(measured, bench.bm25())
            with whole_file(chosen.out / "claims.md") as file:
                file.write(f"{tables}\n".encode())
            print(tables, flush=True)


if __name__ == "__main__":
    main()
