"""The demo with three seeds: its table depends on the random weights, masks and order of data.

    python -m benchmarks.demo.seeds          (after make demo; takes about twice as long; resumes where it stopped)

Every seed pre-trains, fine-tunes from both starts and ranks the test split as `make demo` does; `make demo` is seed 1.
Writes benchmarks/results/demo_seeds.json; docs/results.md has its table.
"""

import argparse
from pathlib import Path

from benchmarks.common.side_by_side import write
from benchmarks.common.training import train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.results_file import Results
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.table import table

SEEDS = (1, 2, 3)
OUTPUT = Path(__file__).parents[1] / "results" / "demo_seeds.json"
DEMO = Path("runs/demo")
SYSTEMS = (
    "bm25",
    "from_random={0}/from_random",
    "from_seed={0}/from_seed",
    "reranked=bm25 > 100 +{0}/colbert",
    "fused=fuse(bm25, from_seed)",
)


def main() -> None:
    argparse.ArgumentParser(prog="benchmarks.demo.seeds", description=__doc__.splitlines()[0]).parse_args()
    collection = Collection.open(Path("data/demo/collection"))
    results = {}
    for seed in SEEDS:
        folder = DEMO if seed == SEEDS[0] else Path("runs/demo_seeds") / str(seed)
        found = run(collection, seed, folder)
        results[f"seed {seed}"] = found.model_dump(mode="json", exclude_none=True)
        print(f"seed {seed}", *table(found), sep="\n", flush=True)
    write(OUTPUT, results)


def run(collection: Collection, seed: int, folder: Path) -> Results:
    """Train and evaluate as `make demo` does, into a folder."""
    train("trainer.pretrain", "recipes/demo_seed.yaml", folder / "seed", {"seed": seed})
    train("trainer.pretrain", "recipes/demo_ict.yaml", folder / "ict", {"seed": seed, "init_from": folder / "seed"})
    start = {"seed": seed, "init_from": folder / "ict"}
    recipes = {"from_random": "demo_siamese_random", "from_seed": "demo_siamese", "colbert": "demo_colbert"}
    for name, recipe in recipes.items():
        train("trainer.finetune", f"recipes/{recipe}.yaml", folder / name, start)
    systems = Systems.open(collection, read_systems([system.format(folder) for system in SYSTEMS]))
    return compare(systems, "test")


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.demo.seeds"):
        main()
