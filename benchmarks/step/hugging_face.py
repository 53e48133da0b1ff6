"""The Hugging Face Trainer as a rival of benchmarks.step: BertForMaskedLM on the same blocks."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments
from transformers.utils import logging

from benchmarks.common import machine
from benchmarks.common.step_cases import Workload
from benchmarks.common.trainer_turns import Turns, trainer_arguments
from benchmarks.step.rivals import StepRival
from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.trainer.training.engine.compiler import missing_tools

Row = dict[str, Tensor]
NAME = "Hugging Face"


def missing(workload: Workload, compiled: bool) -> str | None:
    """Return why this rival cannot run; None if it can."""
    if workload.recipe.method.name != "mlm":
        return "it has masked language modelling only"
    if find_spec("accelerate") is None:
        return "transformers.Trainer needs accelerate; run: pip install 'deepsiam[dev]'"
    return missing_tools(machine.device()) if compiled else None


class HuggingFace(StepRival):
    """A Trainer in its own thread, which stops before each optimizer step until it is this rival's turn.

    The time is measured between two of the Trainer's own callbacks, so it does not include fetching the batch. Nor does
    it include restarting `train`, which would otherwise be needed to measure a Trainer in turn with others.
    """

    def __init__(self, workload: Workload, compiled: bool = False) -> None:
        super().__init__(workload)
        logging.set_verbosity_error()  # it recommends a distributed run
        self.turns = Turns()
        self.folder = tempfile.TemporaryDirectory()
        # in a rank of a distributed run, the Trainer would wrap the model
        rank = os.environ.pop("LOCAL_RANK", None)
        try:
            trainer = InOrder(
                BertForMaskedLM(BertConfig(**_without_type(workload))),
                arguments_of(workload, self.folder.name, compiled),
                train_dataset=rows_of(workload),
                callbacks=[self.turns],
            )
            self.turns.start(trainer)
        finally:
            if rank is not None:
                os.environ["LOCAL_RANK"] = rank

    def step(self) -> float:
        """Let the Trainer take its next step."""
        return self.turns.take()

    def close(self) -> None:
        """End the Trainer's thread."""
        self.turns.close()
        self.folder.cleanup()


class InOrder(Trainer):
    """A Trainer that does not shuffle: all rivals take the same steps."""

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def arguments_of(workload: Workload, folder: str, compiled: bool) -> TrainingArguments:
    """Return the recipe as the Trainer's arguments; nothing is logged or saved."""
    recipe, dtype = workload.recipe, workload.precision
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=recipe.batch.micro,
        gradient_accumulation_steps=recipe.batch.micro_batches,
        fp16=dtype == torch.float16,
        bf16=dtype == torch.bfloat16,
        torch_compile=compiled,
        **trainer_arguments(recipe.optimizer),
    )


def rows_of(workload: Workload) -> list[Row]:
    """Return the blocks of all steps, with a label at every position: IGNORED where nothing is masked."""
    return [row for step in workload.steps for batch in step.micro_batches for row in _rows(batch)]


def _rows(batch: MicroBatch) -> list[Row]:
    ids, mask, positions, targets = (
        torch.from_numpy(batch.arrays[name]) for name in ("input_ids", "attention_mask", "mlm_positions", "mlm_targets")
    )
    labels = torch.full_like(ids, IGNORED)
    kept = targets != IGNORED
    labels.view(-1)[positions[kept]] = targets[kept]
    names = ("input_ids", "attention_mask", "labels")
    return [dict(zip(names, row, strict=True)) for row in zip(ids, mask.long(), labels, strict=True)]


def _without_type(workload: Workload) -> dict[str, Any]:
    return {key: value for key, value in workload.trunk_settings().items() if key != "model_type"}
