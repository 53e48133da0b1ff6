"""The data of a run once opened, and the settings that its numbers depend on.

Opened once, by open_shards.py or open_pairs.py, before the model is built; the job then has its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.training.data.held_out import HeldOut
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, Recipe


@dataclass(frozen=True)
class Data:
    """The order of the micro-batches, the held-out data, and their tokenizer."""

    order: Order
    held_out: Sequence[HeldOut]  # of each source that has some
    tokenizer: Tokenizer
    sha256: dict[str, str]  # of every source, by name
    remarks: Sequence[str] = ()  # what the user should know about the data, one line each


def resume_invariants(recipe: Recipe, data: Data) -> dict[str, Any]:
    """Return all settings except the schedule that a run's numbers depend on: they must not change on resume."""
    encoder = recipe.model_dump(mode="json", include={"trunk", "init_from", "bidirectional", "random_weights"})
    # the name comes first: only the first difference is reported
    method = recipe.method.model_dump(mode="json")
    return {
        "seed": recipe.seed,
        **encoder,
        **_refresh(recipe),
        "method": {"name": recipe.method.name, **method},
        "data": recipe.data.model_dump(mode="json", exclude={"workers", "cache", "cache_bytes"}),
        "batch.size": recipe.batch.size,
        **({"batch.micro": recipe.batch.micro} if any(m.compares_micro_batch for m in recipe.methods) else {}),
        "optimizer.name": recipe.optimizer.name,
        "optimizer.train": recipe.optimizer.model_dump(mode="json")["train"],
        "optimizer": recipe.optimizer.model_dump(mode="json", include={"betas", "eps", "weight_decay"}),
        "data sha256": data.sha256,
    }


def _refresh(recipe: Recipe) -> dict[str, Any]:
    """Return the refresh of a fine-tuning run, or that it has none: it cannot be added later, either."""
    if not isinstance(recipe, FinetuneRecipe):
        return {}
    return {"refresh": recipe.refresh.model_dump(mode="json") if recipe.refresh else None}
