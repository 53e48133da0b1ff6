"""The papers' claims, at a size that two cores take on: only the method differs.

    python -m benchmarks.claims [--methods mlm seed ...] [--tokens N] [--out FOLDER]      (after make demo)

Every method pre-trains the same trunk (recipes/*_small.yaml) on the same shards until it has read N tokens, with each
of SEEDS; each encoder is fine-tuned on the same labelled pairs by the same recipe, at the rate of RATES that is best
for its method on the development split; and MRR@10 is taken on the test split. A method's number is the mean over the
seeds; its interval is that of 95 % of bootstrap samples of the queries, and p is of a paired permutation test against
the masked LM, each query's values averaged over the seeds. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.demo_long import tokens_a_step
from benchmarks.training import train
from data_prep.collection import Collection
from data_prep.errors import exit_on_input_error
from data_prep.files import whole_file
from trainer.evaluate import evaluate_bm25, evaluate_run
from trainer.metrics import paired_permutation_test
from trainer.recipe import PretrainRecipe
from trainer.recipe import load as load_recipe
from trainer.trained import load

METHODS: dict[str, tuple[str, dict[str, object]]] = {  # name: recipe, and what is changed of it
    "random": ("mlm_small", {}),
    "mlm": ("mlm_small", {}),
    "seed": ("seed_small", {}),
    "seed, strong decoder": ("seed_small", {"method.decoder_layers": 5, "method.window": "all"}),
    "cross_thought": ("cross_thought_small", {}),
    "ict": ("ict_small", {}),
    "poly": ("poly_small", {}),
    "retromae": ("retromae_small", {}),
    "condenser": ("condenser_small", {}),
    "skip_thought": ("skip_thought_small", {}),
    "clm": ("clm_small", {}),
}
FINE_TUNING: dict[str, dict[str, object]] = {  # how a method's encoder is asked for a vector, where not for [CLS]
    "clm": {"method.pooling": "last"},
    "cross_thought": {"method.special_tokens": 5},
}
SEEDS = (1, 2, 3)
RATES = (3e-4, 1e-3, 3e-3)
LABELS, STEPS = 1500, 120
AGAINST = "mlm"


@dataclass
class Bench:
    """What there is to rank, where the runs lie, and every measurement so far, kept as soon as it is made."""

    collection: Collection
    out: Path
    tokens: int

    def __post_init__(self) -> None:
        self.path = self.out / "claims.json"
        self.done: dict[str, list[float]] = json.loads(self.path.read_text()) if self.path.is_file() else {}

    def pretrained(self, name: str, seed: int) -> Path:
        """The run of a method; of `random`, the masked LM's, whose weights are then drawn anew."""
        recipe, changes = METHODS[name]
        run = self.out / f"{name if name != 'random' else AGAINST}-{seed}".replace(", ", "-").replace(" ", "-")
        chosen = [f"{key}={value}" for key, value in changes.items()]
        read = load_recipe(PretrainRecipe, Path(f"recipes/{recipe}.yaml"), chosen)
        steps = math.ceil(self.tokens / tokens_a_step(read))
        settings = {**changes, "seed": seed, "steps": steps, "checkpoint.every": steps}
        train("trainer.pretrain", f"recipes/{recipe}.yaml", run, settings)
        return run

    def tuned(self, name: str, seed: int, lr: float, split: str) -> list[float]:
        """MRR@10 of every query of a split after fine-tuning a method's encoder."""
        key = f"{name}-{seed}-{lr:g}-{split}"
        if key not in self.done:
            start = self.pretrained(name, seed)
            settings = {
                "init_from": start,
                "random_weights": str(name == "random").lower(),
                "seed": seed,
                "data.pairs": LABELS,
                "steps": STEPS,
                "optimizer.lr": lr,
                **FINE_TUNING.get(name, {}),
            }
            run = self.out / "tuned" / f"{start.name}{'-random' if name == 'random' else ''}-{lr:g}"
            train("trainer.finetune", "recipes/demo_siamese.yaml", run, settings)
            self.done[key] = evaluate_run(load(run), self.collection, split).values["mrr@10"].tolist()
            with whole_file(self.path) as file:
                file.write(json.dumps(self.done).encode())
            print(f"{key}: MRR@10 {np.mean(self.done[key]):.4f}", flush=True)
        return self.done[key]

    def measured(self, name: str) -> np.ndarray:
        """MRR@10 of a method, fp64 [seeds, queries], at its best rate."""
        rate = max(RATES, key=lambda lr: float(np.mean(self.tuned(name, SEEDS[0], lr, "dev"))))
        return np.array([self.tuned(name, seed, rate, "test") for seed in SEEDS])


def interval(values: np.ndarray, rounds: int = 10_000) -> tuple[float, float]:
    """Between which values the means of 95 % of bootstrap samples of values [Q] lie."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(rounds)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def table(measured: Mapping[str, np.ndarray], bm25: float) -> str:
    """Markdown: a row a method, best first."""
    against = measured[AGAINST].mean(0) if AGAINST in measured else None
    lines = ["| method | MRR@10 | 95 % of the queries' samples | by seed | p against the masked LM |", "|---" * 5 + "|"]
    for name, values in sorted(measured.items(), key=lambda item: -item[1].mean()):
        queries = values.mean(0)
        low, high = interval(queries)
        seeds = ", ".join(f"{value:.4f}" for value in values.mean(1))
        p = "" if against is None or name == AGAINST else f"{paired_permutation_test(queries, against, 10_000):.4f}"
        lines.append(f"| {name} | {queries.mean():.4f} | {low:.4f} to {high:.4f} | {seeds} | {p} |")
    return "\n".join([*lines, f"| BM25 | {bm25:.4f} | | | |"])


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims", description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument("--tokens", type=int, default=2_500_000, help="read in pre-training (2,500,000)")
    parser.add_argument("--collection", type=Path, default=Path("data/demo/collection"), metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims"):
        bench = Bench(Collection.open(chosen.collection), chosen.out, chosen.tokens)
        measured = {name: bench.measured(name) for name in chosen.methods}
        report = table(measured, float(evaluate_bm25(bench.collection, "test").values["mrr@10"].mean()))
        with whole_file(chosen.out / "claims.md") as file:
            file.write(f"{report}\n".encode())
        print(report)


if __name__ == "__main__":
    main()
