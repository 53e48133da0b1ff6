"""How good a Siamese encoder is, by its initial weights, the number of labels, and the tokens seen in pre-training.

    python -m benchmarks.demo.long          (make demo-long; after make demo; resumes where it stopped)

Pre-trains SEED and masked LM with the same trunk, data, batches and steps; fine-tunes random weights and both on
growing numbers of labels (figure 7c of the SEED paper), and SEED and masked LM from four checkpoints each on 1,500
labels. The learning rate for each pair of initial weights and number of labels is the best of RATES on the development
split; every point of the curves is MRR@10 on the test split. Writes runs/demo_long/results.json, two plots, and the
tables as results.md.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.measurements import Measurements
from benchmarks.common.training import tokens_a_step, train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.data_prep.common.files import whole_file
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe

OUT = Path("runs/demo_long")
PRETRAINED = {"mlm": OUT / "mlm", "seed": OUT / "seed"}
STARTS = ("random", "mlm", "seed")
LABELS = {500: 60, 1500: 120, 5000: 240, None: 480}  # number of labelled pairs (None: all): fine-tuning steps
RATES = (3e-4, 1e-3, 3e-3)
FEW = 1500
NAMES = {"random": "random weights", "mlm": "masked LM", "seed": "SEED"}
SHADES = {"random": GREY, "mlm": COLORS[0], "seed": COLORS[1]}


@dataclass
class LabelsBench:
    """The collection, and the measurements made so far."""

    collection: Collection
    path: Path = OUT / "results.json"

    def __post_init__(self) -> None:
        self.measurements = Measurements[list[float]](self.path)

    def tune(self, start: str, labels: int | None, lr: float, split: str, early: Path | None = None) -> list[float]:
        """Return MRR@10 of every query of a split, fine-tuned from the last checkpoint of a start or an early one."""
        step = f"-{early.name}" if early else ""
        name = f"{start}{step}-{labels or 'all'}-{lr:g}"

        def measure() -> list[float]:
            steps = LABELS[labels]
            settings = {
                "init_from": early or PRETRAINED.get(start, PRETRAINED["seed"]),
                "random_weights": str(start == "random").lower(),
                "data.pairs": labels or "null",
                "steps": steps,
                "optimizer.warmup_steps": steps // 10,
                "optimizer.lr": lr,
            }
            run = OUT / "tuned" / name
            train("trainer.finetune", "recipes/demo_siamese.yaml", run, settings)
            values: list[float] = (
                evaluate_split(ranker_of(load_trained(run), self.collection), split).values["mrr@10"].tolist()
            )
            print(f"{name}-{split}: MRR@10 {mean(values):.4f}", flush=True)
            return values

        return self.measurements.get(f"{name}-{split}", measure)

    def best_rate(self, start: str, labels: int | None) -> float:
        """Return the learning rate that is best on the development split."""
        return max(RATES, key=lambda lr: mean(self.tune(start, labels, lr, "dev")))


def main() -> None:
    argparse.ArgumentParser(prog="benchmarks.demo.long", description=__doc__.splitlines()[0]).parse_args()
    for start, run in PRETRAINED.items():
        train("trainer.pretrain", f"recipes/demo_long_{start}.yaml", run, {})
    bench = LabelsBench(Collection.open(Path("data/demo/collection")))
    rates = {(s, n): bench.best_rate(s, n) for n in LABELS for s in STARTS}
    pairs = len(bench.collection.qrels("train"))
    by_labels = {s: {n or pairs: bench.tune(s, n, rates[s, n], "test") for n in LABELS} for s in STARTS}
    by_tokens = {s: tune_checkpoints(bench, s, rates[s, FEW]) for s in PRETRAINED}
    bm25 = mean(evaluate_split(Bm25Ranker(bench.collection), "test").values["mrr@10"].tolist())
    chosen = "; ".join(
        f"{NAMES[s]}: " + ", ".join(f"{rates[s, n]:g} with {n or pairs:,} pairs" for n in LABELS) for s in STARTS
    )
    report = "\n\n".join(
        [
            table("labelled pairs", by_labels),
            table(f"tokens seen in pre-training ({FEW:,} labelled pairs)", by_tokens),
            f"BM25: {bm25:.4f}. Learning rates, chosen on the development split. {chosen}.",
        ]
    )
    with whole_file(OUT / "results.md") as file:
        file.write(f"{report}\n".encode())
    plot(by_labels, "labelled pairs", bm25, OUT / "labels.png")
    plot(by_tokens, f"tokens seen in pre-training ({FEW:,} labelled pairs)", bm25, OUT / "tokens.png")
    print(report)


def tune_checkpoints(bench: LabelsBench, start: str, lr: float) -> dict[int, list[float]]:
    """Return MRR@10 with FEW labels by pre-training tokens: after an eighth, a quarter, half and all of the steps."""
    recipe = load_recipe(PretrainRecipe, Path(f"recipes/demo_long_{start}.yaml"))
    tokens = tokens_a_step(recipe)
    points = {}
    for part in (8, 4, 2, 1):
        step = recipe.steps // part
        early = checkpoint.folder(recipe.run, step) if part > 1 else None
        points[round(tokens * step)] = bench.tune(start, FEW, lr, "test", early)
    return points


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


Curves = Mapping[str, Mapping[int, list[float]]]  # start: {labels or tokens: MRR@10 of every query}


def table(what: str, curves: Curves) -> str:
    """Write a Markdown table: for each x, MRR@10 of each start, and the p-value of SEED against each other start."""
    others = [start for start in curves if start != "seed"]
    head = [what, *(NAMES[start] for start in curves), *(f"p, SEED against {NAMES[start]}" for start in others)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for x in curves["seed"]:
        cells = [f"{x:,}", *(f"{mean(curves[start][x]):.4f}" for start in curves)]
        cells += [f"{paired_permutation_test(curves['seed'][x], curves[start][x], 10_000):.4f}" for start in others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(curves: Curves, what: str, bm25: float, path: Path) -> None:
    figure, (panel,) = new_figure(1, width=6, height=4)
    for start, points in curves.items():
        panel.plot(list(points), [mean(v) for v in points.values()], "o-", color=SHADES[start], label=NAMES[start])
    panel.axhline(bm25, color="black", linestyle=":", label="BM25")
    points = list(curves["seed"])
    panel.set(xlabel=what, ylabel="MRR@10, test packages", xscale="log", ylim=(0, None))
    panel.set_xticks(points, [f"{x:,}" for x in points])
    panel.set_xticks([], minor=True)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    save(figure, path)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.demo.long"):
        main()
