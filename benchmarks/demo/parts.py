"""What each part of the demo's pre-training brings: one seed, ranked alone and fused with BM25.

    python -m benchmarks.demo.parts          (after make demo; takes about as long; resumes where it stopped)

Fine-tunes random weights, SEED alone, ICT alone and SEED followed by ICT as `make demo` does, reusing its runs; also
the token embeddings of SEED and ICT under re-initialised layers. Each start gets the better of two learning rates on
the development split. Writes benchmarks/results/demo_parts.json and prints the table of docs/results.md.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.embeddings_only import embeddings_only
from benchmarks.common.side_by_side import write
from benchmarks.common.training import train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe

COLLECTION, DEMO, OUT = Path("data/demo/collection"), Path("runs/demo"), Path("runs/demo_parts")
SEED, ICT = "recipes/demo_seed.yaml", "recipes/demo_ict.yaml"
SIAMESE, SIAMESE_RANDOM = "recipes/demo_siamese.yaml", "recipes/demo_siamese_random.yaml"
RATES = (3e-4, 1e-3)  # to try with every start; the first is the demo's
EMBEDDINGS = "SEED, then ICT: embeddings only"
OF_DEMO = ("from_random", "from_seed")
OUTPUT = Path(__file__).parents[1] / "results" / "demo_parts.json"


def main() -> None:
    argparse.ArgumentParser(prog="benchmarks.demo.parts", description=__doc__.splitlines()[0]).parse_args()
    collection = Collection.open(COLLECTION)
    results: dict[str, Any] = {}
    for start, runs in tuned(pretrained()).items():
        results[start] = measured(collection, runs)
        print(f"{start}: MRR@10 {results[start]['test']['mrr@10']:.4f}", flush=True)
    write(OUTPUT, results)
    print(table(results))


def pretrained() -> dict[str, Path]:
    """Pre-train what is not trained yet; return the runs by name."""
    runs = {"SEED": DEMO / "seed", "SEED, then ICT": DEMO / "ict", "ICT": OUT / "ict"}
    train("trainer.pretrain", SEED, runs["SEED"], {})
    train("trainer.pretrain", ICT, runs["SEED, then ICT"], {"init_from": runs["SEED"]})
    trunk = load_recipe(PretrainRecipe, Path(SEED)).trunk
    train("trainer.pretrain", ICT, runs["ICT"], {"init_from": "null", "trunk": trunk})
    return runs


def tuned(starts: Mapping[str, Path]) -> dict[str, dict[float, Path]]:
    """Fine-tune what is not fine-tuned yet; return each start's runs by learning rate."""
    both = starts["SEED, then ICT"]
    recipe = load_recipe(FinetuneRecipe, Path(SIAMESE))
    made = {
        "random weights": (SIAMESE_RANDOM, both, "from_random"),
        EMBEDDINGS: (SIAMESE, embeddings_only(both, OUT / "embeddings", recipe.seed), "from_embeddings"),
        "SEED": (SIAMESE, starts["SEED"], "from_seed_alone"),
        "ICT": (SIAMESE, starts["ICT"], "from_ict_alone"),
        "SEED, then ICT": (SIAMESE, both, "from_seed"),
    }
    runs: dict[str, dict[float, Path]] = {}
    for name, (path, start, folder) in made.items():
        for rate in RATES:
            of_demo = rate == recipe.optimizer.lr and folder in OF_DEMO
            runs.setdefault(name, {})[rate] = run = DEMO / folder if of_demo else OUT / f"{folder}-{rate:g}"
            train("trainer.finetune", path, run, {"init_from": start, "optimizer.lr": rate})
    return runs


def measured(collection: Collection, runs: Mapping[float, Path]) -> dict[str, Any]:
    """Rank the test split, alone and fused, with the run that is best on the development split."""
    models = {rate: ranker_of(load_trained(run), collection) for rate, run in runs.items()}
    dev = {rate: evaluate_split(ranker, "dev").means["mrr@10"] for rate, ranker in models.items()}
    rate = max(dev, key=lambda rate: dev[rate])
    given = ["bm25", f'encoder="{runs[rate]}"', "fused=fuse(bm25, encoder)"]
    systems = Systems.open(collection, read_systems(given))
    results = compare(systems, "test")
    bm25, encoder, both = (results.systems[name] for name in ("bm25", "encoder", "fused"))
    (pair,) = (pair for pair in results.pairs if pair.systems == ["bm25", "fused"])
    return {
        "lr": rate,
        "dev_mrr@10_by_lr": {f"{tried:g}": value for tried, value in dev.items()},
        "test": encoder.metrics,
        "fused": both.metrics,
        "weight": both.stages[-1].weight,
        "p_value_bm25": pair.p_value,
        "bm25": bm25.metrics,
    }


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Write a Markdown table: a row for each start, and BM25."""
    head = ("pre-training", "learning rate", "dev, MRR@10", "test, MRR@10", "Recall@100", "fused, MRR@10 (weight)")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for start, row in results.items():
        dev = max(row["dev_mrr@10_by_lr"].values())
        fused = f"{row['fused']['mrr@10']:.4f} ({row['weight']:g})"
        test = f"{row['test']['mrr@10']:.4f} | {row['test']['recall@100']:.4f}"
        lines.append(f"| {start} | {row['lr']:g} | {dev:.4f} | {test} | {fused} |")
    bm25 = next(iter(results.values()))["bm25"]
    return "\n".join([*lines, f"| BM25 | | | {bm25['mrr@10']:.4f} | {bm25['recall@100']:.4f} | |"])


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.demo.parts"):
        main()
