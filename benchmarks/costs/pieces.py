"""Pieces of the project's work that fit into seconds and one process: a bare training step, text to shards.

Each function prepares one piece and returns a callable that does its work and can be called repeatedly.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from benchmarks.common.made_up_text import json_lines, up_to
from benchmarks.common.step_cases import RECIPES, rate_of_pass, workload_of
from deepsiam.data_prep.prepare.run import Options, prepare
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

Work = Callable[[], object]
WORDS = 8192  # of made-up text
VOCABULARY, TRAINED_ON = 4096, 500  # tokens of its tokenizer, and documents to train that on


def train_step(recipe: str, changes: Sequence[str] = ()) -> Work:
    """Prepare forward and backward of a recipe's optimizer step on made-up text: fp32, on the CPU, no DeepSpeed."""
    workload = workload_of(load(PretrainRecipe, RECIPES / recipe, changes))
    model = workload.model().train()

    def work() -> None:
        for batch in workload.steps[0].micro_batches:
            rate_of_pass(model, batch, model.forward, torch.float32)

    return work


def text_to_shards(megabytes: float, folder: Path) -> Work:
    """Prepare the command `data_prep jsonl` in this process, on made-up text in `folder`, with a tokenizer for it."""
    text, vocabulary = folder / f"{megabytes:g}.jsonl", folder / "tokenizer.json"
    text.write_text("".join(up_to(megabytes, json_lines(WORDS))))
    if not vocabulary.exists():
        tokenizer.train(islice(json_lines(WORDS), TRAINED_ON), VOCABULARY, vocabulary)
    options = Options("jsonl", SOURCES["jsonl"].choices(), tokenizer=str(vocabulary), keep_duplicates=True)
    return partial(_prepare, text, options, folder)


def _prepare(text: Path, options: Options, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        prepare([str(text)], Path(out) / "out", options, processes=1, max_bad=0.0)
