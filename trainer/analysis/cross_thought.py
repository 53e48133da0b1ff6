"""Cross-Thought's Table 4: which sequences a sequence attends to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.models.pretraining.cross_thought import CrossThought
from deepsiam.trainer.analysis.held_out import held_out_arrays
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained

SHOWN = 5  # sequences listed, besides the sequence itself


def print_attention(run: Path, shards: Path, sequence: int | None) -> None:
    """Print what a sequence of a held-out document attends to in a run."""
    trained = load_trained(run)
    if not isinstance(trained.model, CrossThought):
        raise InputError(f"{trained.checkpoint}: not a Cross-Thought run; name one")
    arrays = next(held_out_arrays(trained, shards, 1, 1))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.inference_mode():
        alpha = trained.model.attention(tensors["input_ids"], tensors["attention_mask"], tensors["offsets"])
    attention = alpha[0].mean(dim=(0, 1)).numpy()  # [M, M], over heads and special tokens
    for line in case_study(trained, arrays["input_ids"][0], arrays["attention_mask"][0], attention, sequence):
        print(line)


def case_study(
    trained: TrainedModel, ids: np.ndarray, mask: np.ndarray, attention: np.ndarray, sequence: int | None
) -> Iterator[str]:
    """Describe, as lines of text, a masked sequence of a document and the sequences that it attends to most.

    Args:
        trained: gives the tokenizer.
        ids: int64 [M, T], the sequences of the document.
        mask: bool [M, T].
        attention: fp [M, M], the share of its attention that each sequence (row) pays to each sequence (column).
        sequence: the number of the sequence; None: the one whose attention is least even.

    Raises:
        InputError: the document has no such sequence.
    """
    sequences = np.flatnonzero(mask.any(1))
    if sequence is None:
        entropy = -(attention[sequences] * np.log(np.maximum(attention[sequences], 1e-12))).sum(1)
        sequence = int(sequences[entropy.argmin()])
    if sequence not in sequences:
        raise InputError(f"--sequence: {sequence} is not one of the {len(sequences)} sequences, numbered from 0")

    def text(number: int) -> str:
        # the method's own special tokens have no spelling
        spelled = mask[number] & (ids[number] < trained.tokenizer.vocab_size)
        return printable(trained.tokenizer.decode(ids[number][spelled]))

    yield f"sequence {sequence} of {len(sequences)}: {text(sequence)}"
    for number in attention[sequence].argsort()[::-1][: SHOWN + 1].tolist():
        itself = " (itself)" if number == sequence else ""
        yield f"  {attention[sequence, number]:.3f}  {number}{itself}: {text(number)}"
