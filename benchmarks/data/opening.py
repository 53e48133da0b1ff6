"""What a mix of large collections costs before its first step: seconds, and the memory that ranks do not share.

    python -m benchmarks.data.opening [--pairs 10000000] [--collections 11] [--out PATH]     (minutes, 8 GB of disk)

Writes a collection of made-up pairs, gives it several names, and opens the mix as `trainer.finetune` does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.collection_size import make, memory, show
from deepsiam.data_prep.collections.collection import MANIFEST, SPLITS, Collection
from deepsiam.data_prep.collections.relevant import write_relevant
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

RECIPE = Path("recipes/siamese_small.yaml")
MICRO_BATCHES = 64


def make_pairs(folder: Path, pairs: int) -> None:
    """Write a collection of made-up pairs, each of another query and another document."""
    make(folder, pairs, pairs)
    collection, split = Collection.open(folder), folder / SPLITS / "train"
    split.mkdir(parents=True)
    arrays = {
        "queries": np.arange(pairs),
        "group_ends": np.arange(1, pairs + 1),
        "candidates": np.random.default_rng(0).permutation(pairs),
        "labels": np.ones(pairs, np.float32),
    }
    for name, array in arrays.items():
        np.save(split / f"{name}.npy", array)
    write_relevant(folder, collection.tokenizer, "train")
    collection.manifest["counts"][SPLITS]["train"] = pairs
    (folder / MANIFEST).write_text(json.dumps(collection.manifest))


def measure(folder: Path, pairs: int, collections: int) -> dict[str, Any]:
    """Make the collections, and open them in another process."""
    first = folder / "0"
    make_pairs(first, pairs)
    for number in range(1, collections):
        shutil.copytree(first, folder / str(number), copy_function=lambda source, to: Path(to).hardlink_to(source))
    read = subprocess.run(
        [sys.executable, "-m", "benchmarks.data.opening", "--open", str(folder)], check=True, stdout=subprocess.PIPE
    )
    return {"pairs of each": pairs, "collections": collections, **json.loads(read.stdout)}


def opened(folder: Path) -> dict[str, float]:
    """Open the mix of all collections in a folder, and read from it."""
    mix = {path.name: {"collection": str(path), "weight": 1} for path in sorted(folder.iterdir())}
    settings = {"data.collection": "null", "data.mix": json.dumps(mix), "data.one_source_per": "step"}
    recipe = load(FinetuneRecipe, RECIPE, [*(f"{key}={value}" for key, value in settings.items()), "validation=null"])
    before, start = memory("Pss_Anon"), time.perf_counter()
    data = pair_data(recipe)
    opening, start = time.perf_counter() - start, time.perf_counter()
    own = memory("Pss_Anon") - before
    for _ in islice(data.order.stream(data.order.start(), 0, 1), MICRO_BATCHES):
        pass
    return {
        "seconds to open": opening,
        "memory that is not file pages, bytes": own,
        f"seconds to make {MICRO_BATCHES} micro-batches": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.data.opening", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=positive, default=10_000_000, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--collections", type=positive, default=11, metavar="N", help="in the mix (%(default)s)")
    parser.add_argument("--open", type=Path, metavar="FOLDER", help="of such collections: what opening them costs")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/opening.json"), help="(%(default)s)")
    chosen = parser.parse_args()
    if chosen.open:
        print(json.dumps(opened(chosen.open)))
        return
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), chosen.pairs, chosen.collections)
    show(results, chosen.out)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.opening"):
        main()
