"""Which stage of a retriever's training pays: text, weak pairs, or a mix of labelled collections.

    python -m benchmarks.claims.stages [--seeds N] [--tokens N] [--out FOLDER]     (after make demo)

Random weights become a retriever in three stages: RetroMAE on text; `pairs` on pairs made of the same text and of
dialogues; a Siamese network on a mix of docstrings, Cranfield, CACM and Vaswani. Every stage is left out once, and
each combination ranks the same queries: docstrings of held-out packages, and of the other collections the fold of
queries that was not trained on. The first two stages read N tokens each.

The learning rate of the mix is the best of a small grid on development splits, with the first seed. A number is the
mean MRR@10 over the seeds; p compares it with all stages, each query's values averaged over the seeds (paired
permutation test). A stopped run resumes; the table is rewritten after every seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.matching_collections import CLASSIC, TUNED_ON
from benchmarks.claims.material import FOLDS, Material
from benchmarks.claims.tables import ROUNDS, best
from benchmarks.claims.tunings import DOCSTRINGS, RATES, Values, mean, mrr, rank
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import Trainings, file_name
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker

TEXT, PAIRS, MIX = "text", "pairs", "mix"
ALL = "all stages"
CHAINS = {  # the stages of each row, in their order
    ALL: (TEXT, PAIRS, MIX),
    "without text": (PAIRS, MIX),
    "without pairs": (TEXT, MIX),
    "without the mix": (TEXT, PAIRS),
    "the mix alone": (MIX,),
}
RECIPES = {TEXT: "recipes/retromae_small.yaml", PAIRS: "recipes/pairs_small.yaml", MIX: "recipes/siamese_small.yaml"}
SETTINGS: dict[str, dict[str, Any]] = {
    TEXT: {"data.shards": "null"},
    PAIRS: {"data.shards": "null", "data.one_source_per": "step", "optimizer.lr": 5e-4},
    MIX: {
        "steps": 200,
        "batch.size": 64,
        "batch.micro": 32,
        "optimizer.warmup_steps": 20,
        "data.one_source_per": "step",
        "data.collection": "null",
        "data.lanes": 16,
        "data.window": 64,
        "method.max_document_tokens": 64,
        "method.pooling": "mean",
        "method.similarity": "cosine",
        "method.temperature": 0.05,
    },
}
OF_TEXT = {"wikipedia": [], "bookcorpus": [], "reddit": ["--min-score", "1"]}  # sources of pairs, and their options
COLLECTIONS = (DOCSTRINGS, *CLASSIC)
FIRST_SEED, RANKS = 1, 1  # one process with all cores as threads


@dataclass
class StagesBench:
    """What the stages read, the folder of the runs, and the measurements made so far."""

    material: Material
    pairs: Mapping[str, Path]  # shards, by source
    classic: Collection
    out: Path
    tokens: int

    def __post_init__(self) -> None:
        self.measurements = Measurements[Values](self.out / "stages.json")
        self.trainings = Trainings(RANKS)

    def ranked(self, row: str, seed: int) -> Values:
        """Return MRR@10 of every query by collection."""
        chain = CHAINS[row]
        rate = best({rate: self._dev(chain, rate) for rate in RATES}) if chain[-1] == MIX else 0.0
        values: Values = {name: [] for name in CLASSIC}
        of_docstrings = []
        for fold, other in zip(FOLDS, reversed(FOLDS), strict=True):
            splits = {name: f"{name}-{fold}" for name in CLASSIC}
            found = self._mrr(chain, seed, other, rate, {DOCSTRINGS: "test", **splits})
            of_docstrings.append(found[DOCSTRINGS])
            for name in CLASSIC:
                values[name] += found[name]
        return {DOCSTRINGS: np.mean(of_docstrings, axis=0).tolist(), **values}  # ranked after training on either fold

    def _dev(self, chain: Sequence[str], rate: float) -> float:
        """Return the mean MRR@10 on the development splits of the first fold, with the first seed."""
        fold = FOLDS[0]
        splits = {name: f"{name}-{fold}-dev" for name in TUNED_ON}
        return mean(self._mrr(chain, FIRST_SEED, fold, rate, {DOCSTRINGS: "dev", **splits}))

    def _mrr(self, chain: Sequence[str], seed: int, fold: str, rate: float, splits: Mapping[str, str]) -> Values:
        """Return MRR@10 of every query of a split of each collection, after training on a fold."""
        trained_on = f"{fold} fold, rate {rate:g}" if chain[-1] == MIX else "no fold"
        key = f"{' '.join(chain)}, seed {seed}, {trained_on}, {self.tokens} tokens; {' '.join(splits.values())}"

        def measure() -> Values:
            run = self._trained(chain, seed, fold, rate)
            docstrings = rank(run, self.material.docstrings, [splits[DOCSTRINGS]])
            classic = rank(run, self.classic, [split for name, split in splits.items() if name != DOCSTRINGS])
            values = {name: (docstrings | classic)[split] for name, split in splits.items()}
            print(f"{key}: " + ", ".join(f"{name} {np.mean(of):.4f}" for name, of in values.items()), flush=True)
            return values

        return self.measurements.get(key, measure)

    def _trained(self, chain: Sequence[str], seed: int, fold: str, rate: float) -> Path:
        """Train the stages of a chain, each from the one before, unless that is done; return the last run."""
        *before, stage = chain
        named = [*chain, f"{fold}-{rate:g}"] if stage == MIX else chain
        run = self.out / f"{self.tokens}-tokens" / file_name(f"{'-'.join(named)}-{seed}")
        if run in self.trainings.finished:
            return run
        start: dict[str, Any] = {}
        if before:
            start = {"trunk": "null", "init_from": self._trained(before, seed, fold, rate)}
        elif stage == MIX:  # the trunk of the other rows
            start = {"init_from": self._trained((TEXT,), seed, fold, rate), "random_weights": "true"}
        settings = {"seed": seed, **SETTINGS[stage], **start, **self._data(stage, fold)}
        if stage == MIX:
            return self.trainings.train("trainer.finetune", RECIPES[stage], run, {**settings, "optimizer.lr": rate})
        return self.trainings.pretrain(RECIPES[stage], run, settings, self.tokens)

    def _data(self, stage: str, fold: str) -> dict[str, Any]:
        """Return the sources of a stage: equal shares."""
        if stage == MIX:
            docstrings = {"collection": str(self.material.docstrings.directory), "weight": 1}
            classic = {"collection": str(self.classic.directory), "split": fold, "weight": 1}
            return {"data.mix": {DOCSTRINGS: docstrings, "classic": classic}}
        shards = self.pairs if stage == PAIRS else {name: self.material.shards[name] for name in material.MIXED}
        return {"data.mix": {name: {"shards": str(folder), "weight": 1} for name, folder in shards.items()}}


def make_pairs(data: Path, out: Path, ready: Material) -> dict[str, Path]:
    """Make the shards of pairs that are not there yet: of text, and of the docstrings' training split."""
    vocabulary = ready.docstrings.tokenizer.path
    for source, options in OF_TEXT.items():
        material.prepare(source, data, out / source, vocabulary, "--pairs", *options)
    file = out / "docstrings.jsonl"
    if not file.is_file():
        texts, groups = ready.docstrings, ready.docstrings.groups("train")
        found = ((groups[i].query, int(groups[i].candidates[0])) for i in range(len(groups)))
        pairs = ((texts.queries.text(query), texts.corpus.text(document)) for query, document in found)
        material.write(file, (json.dumps({"query": query, "document": document}) for query, document in pairs))
    options = ["--tokenizer", str(vocabulary), "--shards", str(material.SHARDS)]
    material.data_prep("pairs", str(file), "--out", str(out / DOCSTRINGS), *options)
    return {source: out / source / "shards" for source in (DOCSTRINGS, *OF_TEXT)}


def make_classic(data: Path, out: Path, ready: Material) -> Collection:
    """Join Cranfield, CACM and Vaswani into one collection, unless it exists."""
    folder = out / "classic"
    if not (folder / "manifest.json").is_file():
        material.classic(data, out, ready.docstrings.tokenizer.path, CLASSIC)
    return Collection.open(folder)


def bm25(docstrings: Collection, classic: Collection) -> Values:
    """Return BM25's MRR@10 of every query by collection."""
    values = {DOCSTRINGS: mrr(evaluate_split(Bm25Ranker(docstrings), "test"))}
    for name in CLASSIC:
        folds = [mrr(evaluate_split(Bm25Ranker(classic), f"{name}-{fold}")) for fold in FOLDS]
        values[name] = [value for of_fold in folds for value in of_fold]
    return values


def table(rows: Mapping[str, Sequence[Values]], of_bm25: Values) -> str:
    """Write a row for each combination of stages: MRR@10 by collection, and p against all stages.

    Args:
        rows: the values of each seed.
        of_bm25: those of BM25.
    """
    means = {
        name: {collection: np.mean([seed[collection] for seed in seeds], axis=0) for collection in COLLECTIONS}
        for name, seeds in rows.items()
    }
    head = ["stages", *(f"{name}, {len(of_bm25[name]):,} queries" for name in COLLECTIONS)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, values in means.items():
        cells = []
        for collection in COLLECTIONS:
            p = paired_permutation_test(values[collection], means[ALL][collection], ROUNDS) if name != ALL else None
            cells.append(f"{values[collection].mean():.4f}" + ("" if p is None else f" (p = {p:.4f})"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append(f"| BM25 | {' | '.join(f'{np.mean(of_bm25[name]):.4f}' for name in COLLECTIONS)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.stages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="(3)")
    parser.add_argument("--tokens", type=positive, default=4_000_000, help="read in each pre-training (4,000,000)")
    material.add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/stages"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.stages"):
        make_directory(chosen.out)
        ready = material.make(chosen.data, chosen.out / "data")
        pairs = make_pairs(chosen.data, chosen.out / "pairs", ready)
        classic = make_classic(chosen.data, chosen.out / "collections", ready)
        bench = StagesBench(ready, pairs, classic, chosen.out, chosen.tokens)
        of_bm25 = bm25(ready.docstrings, classic)
        for last in range(FIRST_SEED, FIRST_SEED + chosen.seeds):
            rows = {row: [bench.ranked(row, seed) for seed in range(FIRST_SEED, last + 1)] for row in CHAINS}
            material.show(table(rows, of_bm25), chosen.out / "stages.md")


if __name__ == "__main__":
    main()
