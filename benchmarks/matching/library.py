"""Training with sentence-transformers, as rivals in benchmarks.matching: scripts as the library's users write them."""

from __future__ import annotations

import tempfile
from itertools import islice

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers.utils import logging

from benchmarks.common import machine
from benchmarks.common.library_trainer import in_order
from benchmarks.common.made_up_pairs import PairSizes
from benchmarks.common.trainer_turns import Turns, trainer_arguments
from benchmarks.matching.rivals import TrainingRival
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.optimizer import build_optimizer
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from tests.trainer.pairs_in_order import Pairs, pairs_in_order


class Library(TrainingRival):
    """The model and loss of sentence-transformers; its cached loss where a step's pairs are not encoded at once.

    Attributes:
        batches: the pairs of every step of a turn.
    """

    def __init__(self, sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        super().__init__(sizes)
        logging.set_verbosity_error()
        self.recipe = recipe
        self.dtype = ds_config.precision(ds_config.load(recipe.deepspeed)[1])
        self.batches = list(islice(pairs_in_order(recipe), sizes.steps))
        self.model = SentenceTransformer(str(recipe.init_from), device=str(machine.device()), local_files_only=True)
        self.loss: nn.Module = MultipleNegativesRankingLoss(self.model)
        if sizes.micro < sizes.batch:
            self.loss = CachedMultipleNegativesRankingLoss(self.model, mini_batch_size=sizes.micro)
        self.losses = []
        self.loss.register_forward_hook(lambda _module, _inputs, loss: self.losses.append(loss.item()))


class Loop(Library):
    """A loop without the Trainer, which tokenises the texts of each step at that step."""

    def __init__(self, sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        super().__init__(sizes, recipe)
        self.model.train()
        self.optimizer = build_optimizer(self.model, recipe.optimizer)

    def train(self) -> None:
        """Take a step on each of the batches."""
        self.losses = []
        for pairs in self.batches:
            inputs = [batch_to_device(side, machine.device()) for side in self.inputs(pairs)]
            with torch.autocast(machine.device().type, self.dtype, enabled=self.dtype != torch.float32):
                loss = self.loss(inputs, None)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimizer.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def inputs(self, pairs: Pairs) -> list[dict[str, Tensor]]:
        """Tokenise queries and documents, and pad each of the two to its longest text."""
        return [self.model.preprocess(list(side)) for side in zip(*pairs, strict=True)]


class Tokenised(Loop):
    """The same loop, with all texts tokenised and padded before it begins."""

    def __init__(self, sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        super().__init__(sizes, recipe)
        self.tokenised = {id(pairs): super(Tokenised, self).inputs(pairs) for pairs in self.batches}

    def inputs(self, pairs: Pairs) -> list[dict[str, Tensor]]:
        """Return a copy of the prepared inputs; a copy because the model adds its outputs to them."""
        return [dict(side) for side in self.tokenised[id(pairs)]]


class WithTrainer(Library):
    """SentenceTransformerTrainer in a thread, which stops after each turn."""

    def __init__(self, sizes: PairSizes, recipe: FinetuneRecipe) -> None:
        super().__init__(sizes, recipe)
        from datasets import Dataset, disable_progress_bars

        disable_progress_bars()
        queries, documents = zip(*(pair for pairs in self.batches for pair in pairs), strict=True)
        self.folder, self.turns = tempfile.TemporaryDirectory(), Turns()
        trainer = SentenceTransformerTrainer(
            self.model,
            self.arguments(),
            train_dataset=Dataset.from_dict({"query": queries, "document": documents}),
            loss=self.loss,
            callbacks=[self.turns],
        )
        self.turns.start(trainer)

    def train(self) -> None:
        """Let the Trainer take its next steps; it makes the next batch before it reports a step as done."""
        self.losses = []
        for _ in range(self.steps):
            self.turns.take()

    def arguments(self) -> SentenceTransformerTrainingArguments:
        """Return the recipe as the Trainer's arguments; nothing is logged or saved."""
        return SentenceTransformerTrainingArguments(
            output_dir=self.folder.name,
            per_device_train_batch_size=self.recipe.batch.size,
            lr_scheduler_type="constant",
            bf16=self.dtype == torch.bfloat16,
            batch_sampler=in_order,
            **trainer_arguments(self.recipe.optimizer),
        )
