"""The fine-tuning of `make demo-published` as users of sentence-transformers write it: a row of the same table.

    python -m benchmarks.demo.library RECIPE OUT [KEY=VALUE ...]

SentenceTransformerTrainer takes the recipe's steps: the same pairs in the same batches, layers, lengths, learning rate
and schedule. OUT, if it is there, is kept.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from benchmarks.common.library_trainer import in_order, trainer_is_missing
from benchmarks.common.trainer_turns import trainer_arguments
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory, whole_folder
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.trunk import layers_of
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.trainer.pairs_in_order import pairs_in_order

if TYPE_CHECKING:  # its import takes three seconds, which a run that is trained already does not wait
    from sentence_transformers import SentenceTransformerTrainingArguments


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.demo.library", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.demo.library"):
        if chosen.out.exists():
            print(f"{chosen.out}: is trained already")
            return
        if missing := trainer_is_missing():
            raise InputError(missing)
        train(load(FinetuneRecipe, chosen.recipe, chosen.overrides), chosen.out)


def train(recipe: FinetuneRecipe, out: Path) -> None:
    """Train the encoder of `init_from` on the recipe's pairs; save it to a folder, completely or not at all."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    assert isinstance(recipe.method, SiameseConfig)
    model = SentenceTransformer(str(recipe.init_from), device="cpu", local_files_only=True)
    model.max_seq_length = recipe.method.max_document_tokens
    _freeze(model[0].auto_model, recipe)
    batches = islice(pairs_in_order(recipe), recipe.steps)
    queries, documents = zip(*(pair for pairs in batches for pair in pairs), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        SentenceTransformerTrainer(
            model,
            _arguments(recipe, folder),
            train_dataset=Dataset.from_dict({"query": queries, "document": documents}),
            loss=MultipleNegativesRankingLoss(model, scale=1 / recipe.method.temperature),
        ).train()
    make_directory(out.parent)
    with whole_folder(out) as saved:
        model.save(str(saved))
        # the library writes another length into it; collections know a tokenizer by the bytes of its file
        shutil.copy(Path(str(recipe.init_from)) / "tokenizer.json", saved)
    print(f"trained {out}")


def _freeze(encoder: PreTrainedModel, recipe: FinetuneRecipe) -> None:
    """Train as many of the top layers as the recipe does."""
    encoder.requires_grad_(recipe.optimizer.train == "all")
    if isinstance(recipe.optimizer.train, int):
        for layer in layers_of(encoder)[-recipe.optimizer.train :]:
            layer.requires_grad_(True)


def _arguments(recipe: FinetuneRecipe, folder: str) -> SentenceTransformerTrainingArguments:
    """Return the recipe as the Trainer's arguments, without shuffling: its pairs come in a run's order."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    return SentenceTransformerTrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=recipe.batch.size,
        lr_scheduler_type=recipe.optimizer.schedule,
        warmup_steps=recipe.optimizer.warmup_steps,
        batch_sampler=in_order,
        seed=recipe.seed,
        **trainer_arguments(recipe.optimizer) | {"max_steps": recipe.steps},
    )


if __name__ == "__main__":
    main()
