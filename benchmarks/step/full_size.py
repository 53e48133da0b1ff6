"""Optimizer steps of the base recipes at full size on made-up text: what is measured on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.planning.compute import SPECIAL, made_up_batch
from deepsiam.trainer.training.recipe.build import build_model, trunk_of
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load

RECIPES = Path(__file__).parents[2] / "recipes"
RANKS, WORDS, TEXTS = 8, 30_522, 4096
CASES = {
    "seed": ("seed_base.yaml",),
    "mlm": ("mlm_base.yaml",),
    "siamese": ("finetune.yaml", "batch.size=1024", "batch.micro=128"),
    "siamese-32": ("finetune.yaml", "batch.size=256", "batch.micro=32"),
}


def recipe_of(name: str, *changes: str) -> Recipe:
    """Return the recipe of a case, in bf16 under ZeRO-1."""
    file, *own = CASES[name]
    kind: type[Recipe] = PretrainRecipe if "_base" in file else FinetuneRecipe
    return load(kind, RECIPES / file, [*own, "deepspeed=zero1_bf16", *changes])


def _vocabulary(recipe: Recipe) -> Vocabulary:
    return Vocabulary((getattr(recipe, "trunk", None) or {}).get("vocab_size", WORDS), **SPECIAL)


def model_of(recipe: Recipe) -> TrunkModel:
    """Build the model of a recipe, with random weights and a vocabulary of BERT's size."""
    base = load(PretrainRecipe, RECIPES / "seed_base.yaml").trunk or {}
    trunk = getattr(recipe, "trunk", None) or base
    vocabulary = _vocabulary(recipe)
    built = trunk_of({**trunk, "vocab_size": vocabulary.vocab_size, "pad_token_id": vocabulary.pad}, "trunk")
    return build_model(recipe.method, built)


def micro_batch_of(recipe: Recipe) -> MicroBatch:
    """Make a micro-batch of made-up texts: queries have 4 to 16 tokens, documents 90 on average and up to 250."""
    vocabulary = _vocabulary(recipe)
    if isinstance(recipe, PretrainRecipe):
        return made_up_batch(recipe.method, vocabulary, recipe.batch.micro)[0]
    corpus = _Corpus(vocabulary, recipe.method.max_document_tokens)
    rng, number = np.random.default_rng(1), recipe.batch.micro
    examples = [
        Example(
            rng.integers(10, vocabulary.vocab_size, rng.integers(4, 17)), np.array([i]), np.ones(1, np.float32), [i]
        )
        for i in range(number)
    ]
    batcher = recipe.method.batcher(vocabulary, Candidates(corpus, np.arange(TEXTS)))
    return batcher.micro_batch(examples, keyed_rngs("roofline", [(i,) for i in range(number)]))


class _Corpus:
    def __init__(self, vocabulary: Vocabulary, most: int) -> None:
        rng = np.random.default_rng(0)
        lengths = np.exp(rng.normal(np.log(83), 0.4, TEXTS)).astype(int).clip(8, most - 2)
        self.texts = [rng.integers(10, vocabulary.vocab_size, length) for length in lengths]

    def tokens(self, i: int) -> np.ndarray:
        return self.texts[i]
