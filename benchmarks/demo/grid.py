"""The small grid that the demo's fine-tuning settings were chosen from, the same for random and pre-trained weights.

    python -m benchmarks.demo.grid          (after make demo; about 25 minutes on two cores; resumes where it stopped)

Every setting is fine-tuned from random and from pre-trained weights with the demo's pairs and steps, and compared by
MRR@10 on the development split, whose packages are in neither training nor test. The best of each are the settings of
recipes/demo_siamese*.yaml; a test compares them with the output committed here, demo_grid.json.
"""

import argparse
import itertools
import json
from pathlib import Path

from benchmarks.common.training import train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained

RATES = (1e-4, 3e-4, 1e-3, 3e-3)
SIMILARITIES = (("dot", 1.0), ("cosine", 0.05))
RECIPES = {"random": "recipes/demo_siamese_random.yaml", "seed": "recipes/demo_siamese.yaml"}
OUTPUT = Path(__file__).parents[1] / "results" / "demo_grid.json"


def main() -> None:
    argparse.ArgumentParser(prog="benchmarks.demo.grid", description=__doc__.splitlines()[0]).parse_args()
    collection = Collection.open(Path("data/demo/collection"))
    rows = []
    for start, lr, (similarity, temperature) in itertools.product(RECIPES, RATES, SIMILARITIES):
        setting = {"optimizer.lr": lr, "method.similarity": similarity, "method.temperature": temperature}
        run = Path("runs/demo_grid") / f"{start}-{lr:g}-{similarity}-{temperature:g}"
        train("trainer.finetune", RECIPES[start], run, setting)
        means = evaluate_split(ranker_of(load_trained(run), collection), "dev").means
        rows.append({"start": start, **setting, **means})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    chosen = {
        start: max((row for row in rows if row["start"] == start), key=lambda r: r["mrr@10"]) for start in RECIPES
    }
    OUTPUT.write_text(json.dumps({"split": "dev", "chosen": chosen, "grid": rows}, indent=1) + "\n")
    print(f"wrote {OUTPUT}; put the chosen settings into the recipes")


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.demo.grid"):
        main()
