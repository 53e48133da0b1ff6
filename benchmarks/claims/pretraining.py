"""Test the papers' claims at a size that two cores can compute: only the method differs.

    python -m benchmarks.claims.pretraining [--methods mlm seed ...] [--seeds N] [--tokens N] [--out FOLDER]

It starts from what `make demo` made.

Every method pre-trains the same trunk, the demo's, until it has read N tokens of the same mix of text, and each encoder
is fine-tuned by the same recipe: on 500, 1,500 and all pairs of docstrings, to rank those of held-out packages; and on
one half of the queries of Cranfield and Vaswani together, to rank for the other half, and the other way round. "NAME,
embeddings only" starts from NAME's token embeddings under re-initialised layers. Each start and each fine-tuning has
its own learning rate: the best of a small grid, with the first seed, on queries that are neither trained on nor ranked.

Pre-training and fine-tuning are both repeated with every seed. A start's number is the mean MRR@10 over the seeds; its
interval covers 95 % of bootstrap samples of the queries; p is from paired permutation tests against the masked LM and
against random weights, with each query's values averaged over the seeds. BM25 reads the whole text, and the text
truncated to what the encoders read. A stopped run resumes; the tables are rewritten after every seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.tables import Row, best, report
from benchmarks.claims.tunings import RATES, RECIPE, Tuning, Values, bm25, by_table, mean, rank, tunings
from benchmarks.common.embeddings_only import embeddings_only
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import Trainings, file_name
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe


@dataclass(frozen=True)
class Method:
    """A pre-training, and how its encoder is fine-tuned."""

    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)  # to the recipe
    trunk: dict[str, Any] = field(default_factory=dict)  # changes to the trunk of all
    reads: Sequence[str] = material.MIXED
    tuning: dict[str, Any] = field(default_factory=dict)  # how the encoder is pooled, if not by [CLS]


# ModernBERT's layers with causal attention; it insists on a start and an end, [CLS] and [SEP] of the tokenizer
CAUSAL = {
    "model_type": "modernbert-decoder",
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
METHODS = {
    "mlm": Method("mlm_small"),
    "seed": Method("seed_small", {"method.decoder_layers": 1}),
    "seed, strong decoder": Method("seed_small", {"method.decoder_layers": 5, "method.window": "all"}),
    "cross_thought": Method("cross_thought_small", tuning={"method.special_tokens": 5}),
    "ict": Method("ict_small"),
    "poly": Method("poly_small"),
    "poly, Reddit": Method("poly_small", {"method.pairs": "utterances"}, reads=("reddit",)),
    "clm": Method("clm_small", trunk=CAUSAL, tuning={"method.pooling": "last"}),
    "skip_thought": Method("skip_thought_small"),
    "retromae": Method("retromae_small"),
    "condenser": Method("condenser_small"),
}
RANDOM = "random"  # the trunk of the masked LM with random weights
EMBEDDINGS = ", embeddings only"
STARTS = (RANDOM, *METHODS, *(name + EMBEDDINGS for name in METHODS))
PAIRS = {  # of docstrings: how many are fine-tuned on, and the steps
    "docstrings, 500 pairs": (500, 60),
    "docstrings, 1,500 pairs": (1500, 120),
    "docstrings, all pairs": (None, 480),
}
DEFAULT = (RANDOM, *tuple(METHODS)[:7], f"mlm{EMBEDDINGS}", f"ict{EMBEDDINGS}")
TRUNK_OF = Path("recipes/demo_seed.yaml")  # ModernBERT's layers: in BERT's, attention begins to learn late
FIRST_SEED = 1
RANKS = 1  # one process with all cores as threads: faster than two processes with one each


@dataclass
class PretrainingBench:
    """The material, the folder of the runs, and the measurements made so far."""

    material: material.Material
    out: Path
    tokens: int

    def __post_init__(self) -> None:
        self.runs = self.out / f"{self.tokens}-tokens"
        self.measurements = Measurements[Values](self.out / "claims.json")
        self.tunings = tunings(self.material.docstrings, self.material.classic, PAIRS)
        self.trainings = Trainings(RANKS)

    def ranked(self, name: str, seed: int) -> Values:
        """Return MRR@10 of every query by table, each fine-tuning with its best rate."""
        return by_table(
            (tuning, self._mrr(name, seed, tuning, best(self.dev(name, tuning)), tuning.ranked.values()))
            for tuning in self.tunings
        )

    def dev(self, name: str, tuning: Tuning) -> dict[float, float]:
        """Return the mean MRR@10 on the development splits by learning rate, with the first seed."""
        return {rate: mean(self._mrr(name, FIRST_SEED, tuning, rate, tuning.dev)) for rate in RATES}

    def row(self, name: str, seeds: Iterable[int]) -> Row:
        """Return what the tables report on a start."""
        dev = {tuning.name: self.dev(name, tuning) for tuning in self.tunings}
        return Row([self.ranked(name, seed) for seed in seeds], dev)

    def _mrr(self, name: str, seed: int, tuning: Tuning, rate: float, splits: Iterable[str]) -> Values:
        splits = list(splits)
        key = f"{name}, seed {seed}, {self.tokens} tokens; {tuning.name}, rate {rate:g}; {' '.join(splits)}"

        def measure() -> Values:
            values = rank(self._tuned(name, seed, tuning, rate), tuning.collection, splits)
            print(f"{key}: MRR@10 {mean(values):.4f}", flush=True)
            return values

        return self.measurements.get(key, measure)

    def _tuned(self, name: str, seed: int, tuning: Tuning, rate: float) -> Path:
        run = self.runs / "tuned" / file_name(f"{name}-{seed}-{tuning.name}-{rate:g}")
        method = METHODS.get(name.removesuffix(EMBEDDINGS))
        settings = {
            "init_from": self._start(name, seed),
            "random_weights": str(name == RANDOM).lower(),
            "seed": seed,
            "data.collection": tuning.collection.directory,
            "optimizer.lr": rate,
            **tuning.settings,
            **(method.tuning if method else {}),
        }
        return self.trainings.train("trainer.finetune", RECIPE, run, settings)

    def _start(self, name: str, seed: int) -> Path:
        """Return the run or checkpoint that fine-tuning starts from."""
        if name.endswith(EMBEDDINGS):
            of = self._pretrained(name.removesuffix(EMBEDDINGS), seed)
            return embeddings_only(of, self.runs / file_name(f"{name}-{seed}"), seed)
        return self._pretrained("mlm" if name == RANDOM else name, seed)

    def _pretrained(self, name: str, seed: int) -> Path:
        run = self.runs / file_name(f"{name}-{seed}")
        if run in self.trainings.finished:  # counting its tokens takes a while
            return run
        method = METHODS[name]
        recipe = f"recipes/{method.recipe}.yaml"
        mix = {source: {"shards": str(self.material.shards[source]), "weight": 1} for source in method.reads}
        trunk = {**(load_recipe(PretrainRecipe, TRUNK_OF).trunk or {}), **method.trunk}
        settings = {**method.changes, "trunk": trunk, "data.shards": "null", "data.mix": mix, "seed": seed}
        return self.trainings.pretrain(recipe, run, settings, self.tokens)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.pretraining", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=STARTS, default=DEFAULT, metavar="NAME", help=", ".join(STARTS))
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="(3)")
    parser.add_argument("--tokens", type=positive, default=17_000_000, help="read in pre-training (17,000,000)")
    material.add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.pretraining"):
        make_directory(chosen.out)
        bench = PretrainingBench(material.make(chosen.data, chosen.out / "data"), chosen.out, chosen.tokens)
        seeds = range(FIRST_SEED, FIRST_SEED + chosen.seeds)
        ranked_by_bm25 = bm25(bench.tunings)
        for seed in seeds:
            for name in chosen.methods:
                means = ", ".join(f"{on} {np.mean(mrr):.4f}" for on, mrr in bench.ranked(name, seed).items())
                print(f"{name}, seed {seed}: MRR@10 of {means}", flush=True)
            rows = {name: bench.row(name, range(FIRST_SEED, seed + 1)) for name in chosen.methods}
            material.show(report(rows, bench.tunings, ranked_by_bm25), chosen.out / "claims.md")


if __name__ == "__main__":
    main()
