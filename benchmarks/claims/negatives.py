"""Which negatives train a Siamese network best: in-batch, random, BM25's, its own, and what keeps false ones out.

    python -m benchmarks.claims.negatives [--seeds N] [--out FOLDER]     (after make demo; resumes where it was stopped)

The demo's encoder (SEED, then ICT) is fine-tuned by the demo's recipe: on 1,500 pairs of docstrings, to rank those of
held-out packages; and on two thirds of one half of the queries of Cranfield and Vaswani together, to rank for the other
half, and the other way round. All runs have the same pairs, steps, learning rate and in-batch negatives (the other
documents of a query's micro-batch). They differ in one additional document for each query:

the batch's   none
random        a document that is relevant to another query, resampled in every epoch
BM25's        one of BM25's first 100 that are not relevant (trainer.mine)
its own       the same, until the run mines with its own encoder after a third and after two thirds of its steps (ANCE)

or in what keeps out documents that may be relevant:

BM25's below 95 %       of BM25's, those that score less than 95 % of the best relevant document (NV-Retriever)
BM25's ranks 31 to 100  of BM25's, not the first 30
BM25's, filtered        of BM25's, those that a cross-encoder, trained on the same pairs and BM25's negatives, scores no
                        higher than the best relevant document
..., ignoring           in the loss, none that scores more than 2 above the relevant document (Qwen3-Embedding: 0.1 of
                        a cosine, which at a temperature of 0.05 is as much)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.tunings import COLLECTIONS, Tuning, Values, by_table, rank, tunings
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import file_name, train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer import mine
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test

RECIPE = "recipes/demo_siamese.yaml"
ENCODER = Path("runs/demo/ict")
CROSS_ENCODER = "recipes/cross_encoder_small.yaml"
LONGER = 2  # times as many steps as in the claims, because the run mines on the way
RATE = 3e-4  # the demo's, the best of its grid for this encoder
RANKS = 1  # with all cores as threads

# settings of the fine-tunings
HARD = {"method.hard_negatives": 1}
IGNORING = {"method.ignore_above": 2.0}
# options of trainer.mine, by the name of what is made
ALL, BELOW, LATER, FILTERED = "all", "below", "later", "filtered"
MINING: Mapping[str, Sequence[str]] = {
    ALL: ["--system=bm25"],
    BELOW: ["--system=bm25", "--margin=5%"],
    LATER: ["--system=bm25", "--skip=30"],
    FILTERED: ["--margin=0"],  # and --system, which names the cross-encoder
}


class Kind(NamedTuple):
    """How the negatives of a run are chosen."""

    settings: Mapping[str, Any] = {}
    mined: str | None = None  # one of MINING
    refreshes: int = 0


BATCH, RANDOM, BM25, OWN = "the batch's", "random", "BM25's", "its own"
KINDS = {
    BATCH: Kind(),
    RANDOM: Kind({"method.negatives_per_query": 1}),
    BM25: Kind(HARD, ALL),
    OWN: Kind(HARD, ALL, refreshes=2),
    "BM25's below 95 %": Kind(HARD, BELOW),
    "BM25's ranks 31 to 100": Kind(HARD, LATER),
    "BM25's, filtered": Kind(HARD, FILTERED),
    "BM25's, ignoring": Kind({**HARD, **IGNORING}, ALL),
    "the batch's, ignoring": Kind(IGNORING),
}


@dataclass
class NegativesBench:
    """The fine-tunings, and the measurements made so far."""

    tunings: list[Tuning]
    out: Path

    def __post_init__(self) -> None:
        self.measurements = Measurements[Values](self.out / "negatives.json")

    def ranked(self, kind: str, seed: int) -> Values:
        """Return MRR@10 of every query by collection."""
        values = []
        for tuning in self.tunings:

            def measure(tuning: Tuning = tuning) -> Values:
                return rank(self._tuned(kind, seed, tuning), tuning.collection, tuning.ranked.values())

            values.append((tuning, self.measurements.get(f"{kind}, seed {seed}; {tuning.name}", measure)))
        return by_table(values)

    def _tuned(self, kind: str, seed: int, tuning: Tuning) -> Path:
        chosen = KINDS[kind]
        run = self.out / "tuned" / file_name(f"{kind}-{seed}-{tuning.name}".replace("'", ""))
        collection = self._mined(chosen.mined, tuning) if chosen.mined else tuning.collection.directory
        settings = self._settings(tuning, collection, seed)
        if chosen.refreshes:
            settings |= {"refresh.every": settings["steps"] // (chosen.refreshes + 1), "refresh.depth": 100}
        train("trainer.finetune", RECIPE, run, {**settings, **chosen.settings}, RANKS)
        return run

    def _settings(self, tuning: Tuning, collection: Path, seed: int) -> dict[str, Any]:
        return {
            "init_from": ENCODER,
            "seed": seed,
            "data.collection": collection,
            "optimizer.lr": RATE,
            **tuning.settings,
            "steps": LONGER * int(tuning.settings["steps"]),
        }

    def _mined(self, name: str, tuning: Tuning) -> Path:
        """Return a fine-tuning's collection with the negatives of one of MINING."""
        out = self.out / "mined" / f"{name}-{file_name(tuning.name)}"
        if not out.is_dir():
            options = [*MINING[name], *([self._filter(tuning)] if name == FILTERED else [])]
            split = str(tuning.settings.get("data.split", "train"))
            mine.main([f"--collection={tuning.collection.directory}", f"--split={split}", f"--out={out}", *options])
        return out

    def _filter(self, tuning: Tuning) -> str:
        """Train a cross-encoder on a fine-tuning's pairs; return the option of trainer.mine that filters with it."""
        run = self.out / "cross_encoders" / file_name(tuning.name)
        settings = self._settings(tuning, self._mined(ALL, tuning), seed=1)
        train("trainer.finetune", CROSS_ENCODER, run, {**settings, **HARD}, RANKS)
        return f'--system=bm25 > 100 "{run}"'


def table(values: Mapping[str, Mapping[int, Values]]) -> str:
    """Write the mean MRR@10 by kind and collection, its values by seed, and p against the in-batch negatives."""
    lines = [f"| negatives | {' | '.join(COLLECTIONS)} |", "|---" * (1 + len(COLLECTIONS)) + "|"]
    for kind, by_seed in values.items():
        cells = []
        for collection in COLLECTIONS:
            of_seed = [np.array(ranked[collection]) for ranked in by_seed.values()]
            own, base = (np.mean(of, axis=0) for of in (of_seed, [r[collection] for r in values[BATCH].values()]))
            p = "" if kind == BATCH else f", p = {paired_permutation_test(own, base):.4f}"
            cells.append(f"{own.mean():.4f} ({', '.join(f'{of.mean():.4f}' for of in of_seed)}){p}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(bench: NegativesBench, seeds: Iterable[int]) -> None:
    """Measure seed by seed, and print the table after each."""
    values: dict[str, dict[int, Values]] = {kind: {} for kind in KINDS}
    for seed in seeds:
        for kind in KINDS:
            values[kind][seed] = bench.ranked(kind, seed)
            means = ", ".join(f"{name} {np.mean(mrr):.4f}" for name, mrr in values[kind][seed].items())
            print(f"{kind}, seed {seed}: MRR@10 of {means}", flush=True)
        material.show(table(values), bench.out / "negatives.md")


def main(argv: Any = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.negatives", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    material.add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/negatives"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.negatives"):
        if not material.TOKENIZER.is_file() or not ENCODER.is_dir():
            raise InputError(f"{ENCODER}: no such run; run: make demo")
        make_directory(chosen.out)
        docstrings = Collection.open(material.DOCSTRINGS / "collection")
        classic = Collection.open(material.classic(chosen.data, chosen.out / "data", material.TOKENIZER))
        run(NegativesBench(tunings(docstrings, classic), chosen.out), range(1, 1 + chosen.seeds))


if __name__ == "__main__":
    main()
