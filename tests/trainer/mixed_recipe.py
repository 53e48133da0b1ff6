"""A fine-tuning on a mix of three sources, with different prompts, losses and negatives."""

from pathlib import Path
from typing import Any

from tests import toy

SOURCES = ("plain", "prompted", "taught")


def mixed_recipe(
    path: Path, collection: Path, scored: Path, *, per: str = "micro_batch", refreshed: bool = False, **changes: Any
) -> Path:
    """Four micro-batches of two queries per step, of any source or all of one; dropout is on.

    With `refreshed`, the run mines for the source `plain`, as many documents as there are: no order of scores matters.
    """
    mix: dict[str, dict[str, Any]] = {
        "prompted": {"collection": str(collection), "weight": 3, "query_prompt": "abc de", "pairs": 60},
        "taught": {"collection": str(scored), "weight": 2, "loss": {"kl": 1.0, "margin_mse": 0.5}, "negatives": "own"},
        "plain": {"collection": str(collection), "weight": 3, "negatives_per_query": 1},
    }
    if refreshed:
        mix["plain"]["hard_negatives"] = 1
        mix["prompted"]["refresh"] = mix["taught"]["refresh"] = False
        changes["refresh"] = {"every": 3, "depth": 1000}
    values: dict[str, Any] = {
        "steps": 6,
        "data": {"mix": mix, "one_source_per": per, "lanes": 8, "window": 2},
        "batch": {"size": 8, "micro": 2},
        "trunk": {**toy.TRUNK, "initializer_range": 0.2},  # different texts get different vectors
        "method": {"similarity": "cosine", "temperature": 0.1, "negatives": per},
        "optimizer": {"lr": 3e-3, "eps": 1e-3},  # with a small eps, rounding alone could move a weight by a whole lr
        "checkpoint": {"every": 3},
        "validation": {"split": "test", "every": 3},
    }
    return toy.finetune_recipe(path, collection, **{**values, **changes})
