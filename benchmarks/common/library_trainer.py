"""SentenceTransformerTrainer for a comparison: whether it can run, and the order of its data."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch.utils.data import SequentialSampler

if TYPE_CHECKING:
    from sentence_transformers.sampler import DefaultBatchSampler


def in_order(dataset: Any, batch_size: int, drop_last: bool, **_: Any) -> DefaultBatchSampler:
    """Return a sampler that does not shuffle: all rivals take the same steps."""
    from sentence_transformers.sampler import DefaultBatchSampler

    return DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def trainer_is_missing() -> str | None:
    """Return why SentenceTransformerTrainer cannot run; None if it can."""
    if find_spec("datasets") and find_spec("accelerate"):
        return None
    return "SentenceTransformerTrainer needs datasets: pip install 'sentence-transformers[train]'"
