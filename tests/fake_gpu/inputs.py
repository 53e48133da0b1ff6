"""Small models of every method, and micro-batches for them, from the registries and the recipes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import MicroBatch
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.registry import MATCHING, PRETRAINING
from deepsiam.trainer.cluster.planning.compute import SPECIAL, made_up_batch
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.models.matching.examples import spelled
from tests.models.tiny import Spelled
from tests.toy import ROOT

VOCABULARY = Spelled(2048, **SPECIAL)
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
TRUNKS: dict[str, dict[str, Any]] = {"bert": {}, "roberta": {}, "modernbert": {}, "qwen2": {"num_key_value_heads": 2}}
DECODERS = ("qwen2",)
# the negatives of the whole step are Engine's: see tests.fake_gpu.steps
OWN_NEGATIVES, IGNORING = "siamese with own negatives", "siamese that ignores negatives"
CHANGES = {
    "siamese": ("method.negatives=micro_batch",),
    IGNORING: ("method.negatives=micro_batch", "method.ignore_above=0.1"),
}
RECIPES = {
    **{name: f"{name}_small" for name in [*PRETRAINING, *MATCHING]},
    OWN_NEGATIVES: "seed_msmarco_passage_small",
    IGNORING: "siamese_small",
}
TEXTS, EXAMPLES = 600, 8
MICRO = 2  # pre-training examples in a micro-batch


class Corpus:
    """Made-up documents by number."""

    def __init__(self, longest: int) -> None:
        rng = np.random.default_rng(0)
        self.texts = [rng.integers(10, VOCABULARY.vocab_size, rng.integers(2, longest)) for _ in range(TEXTS)]

    def tokens(self, i: int) -> np.ndarray:
        """Return the ids of document i."""
        return self.texts[i]

    def text(self, i: int) -> str:
        """Return document i."""
        return spelled(self.texts[i])


@cache
def recipe_of(name: str, *changes: str) -> Recipe:
    """Return a method's small recipe."""
    kind: type[Recipe] = PretrainRecipe if name in PRETRAINING else FinetuneRecipe
    return load(kind, ROOT / "recipes" / f"{RECIPES[name]}.yaml", [*CHANGES.get(name, ()), *changes])


def batch_of(recipe: Recipe) -> MicroBatch:
    """Make a micro-batch of made-up text."""
    if isinstance(recipe, PretrainRecipe):
        return made_up_batch(recipe.method, VOCABULARY, MICRO)[0]
    method: MatchingConfig = recipe.method
    corpus = Corpus(method.max_document_tokens)
    examples = [_example(corpus, i, method.unit) for i in range(EXAMPLES)]
    batcher = method.batcher(VOCABULARY, Candidates(corpus, np.arange(TEXTS)))
    return batcher.micro_batch(examples, keyed_rngs("fake gpu", [(i,) for i in range(EXAMPLES)]))


def _example(corpus: Corpus, i: int, unit: str) -> Example:
    """Return query i with a relevant document and, unless the method trains on pairs, eight negatives of its own."""
    documents = [i] if unit == "pair" else [i, *range(200 + 8 * i, 208 + 8 * i)]
    query, labels = TEXTS - i - 1, np.ones(len(documents), np.float32)
    return Example(corpus.tokens(query), np.array(documents), labels, np.array([i]), text=corpus.text(query))


def suited(name: str, model_type: str) -> Recipe:
    """Return a method's small recipe as a causal trunk needs it, if the trunk is one and the method has the key."""
    recipe = recipe_of(name)
    pools = model_type in DECODERS and getattr(recipe.method, "pooling", None) == "cls"
    return recipe_of(name, "method.pooling=mean") if pools else recipe


def trunk_of(recipe: Recipe, model_type: str) -> PreTrainedModel:
    """Build a small trunk for a recipe, really: some types compute when they are built."""
    method = recipe.method
    causal = {"is_decoder": True} if method.name == "clm" and model_type in ("bert", "roberta") else {}
    longest = method.positions if method.name in PRETRAINING else max(method.input_lengths.values())
    return build_trunk(
        {
            **SIZES,
            **TRUNKS[model_type],
            **causal,
            "model_type": model_type,
            "vocab_size": VOCABULARY.vocab_size + method.added_tokens + method.markers,
            "pad_token_id": VOCABULARY.pad,
            "max_position_embeddings": longest + 8,
        }
    )
