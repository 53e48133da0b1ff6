"""The data of benchmarks.matching: made-up pairs of realistic lengths, and an encoder that all rivals start from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch

from benchmarks.common.made_up_text import draw_words
from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.tokenizers import tokenizer as own_tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.recipe.build import build_model, new_trunk
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build

QUERY_TOKENS = range(5, 21)
SPREAD = 0.7  # of ln(tokens of a document)
FEWEST = 4  # tokens of a document
HEAD = 64  # width of an attention head
SPECIAL = 2  # [CLS] and [SEP]
LANES = 4


@dataclass(frozen=True)
class PairSizes:
    """What to train: an encoder, its batch, and its documents, whose lengths are log-normal."""

    layers: int
    hidden: int
    words: int  # of the vocabulary
    batch: int  # pairs of an optimizer step
    micro: int  # pairs that are encoded at a time
    median: int  # tokens of a document
    longest: int  # tokens of a document, with special tokens; longer ones are truncated
    steps: int  # that a rival takes in a turn
    dropout: float = 0.1

    @property
    def pairs(self) -> int:
        """Enough pairs for a turn's steps of every lane: no pair comes twice in a turn."""
        return 2 * (self.steps * self.batch + LANES * self.micro)


def prepare(sizes: PairSizes, folder: Path) -> FinetuneRecipe:
    """Write tokenizer, collection and encoder into a folder; return the recipe that fine-tunes the encoder."""
    vocabulary = write_tokenizer(sizes.words, folder / "tokenizer.json")
    (folder / "pairs.jsonl").write_text("".join(made_up_pairs(sizes)))
    build_collection("pairs", [folder / "pairs.jsonl"], folder / "collection", vocabulary)
    write_encoder(sizes, vocabulary, folder)
    return build(FinetuneRecipe, {**values_of(sizes, folder), "init_from": str(folder / "encoder")}, "benchmark")


def write_tokenizer(words: int, path: Path) -> Tokenizer:
    """Write a WordPiece tokenizer in which every word of the made-up texts is one token."""
    special = list(own_tokenizers.SPECIAL_TOKENS.values())
    pieces = [*special, *(word(number) for number in range(words - len(special)))]
    model = tokenizers.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.save(str(path))
    return own_tokenizers.load(path)


def word(number: int) -> str:
    """Return a word of the made-up texts."""
    return f"word{number}"


def made_up_pairs(sizes: PairSizes) -> Iterator[str]:
    """Yield pairs of texts as JSON lines; a query has 5 to 20 words, equally often."""
    rng = keyed_rng("benchmark pairs")
    different = sizes.words - len(own_tokenizers.SPECIAL_TOKENS)
    for _ in range(sizes.pairs):
        lengths = rng.integers(QUERY_TOKENS.start, QUERY_TOKENS.stop), int(rng.lognormal(np.log(sizes.median), SPREAD))
        query, document = (
            " ".join(map(word, draw_words(rng, max(FEWEST, min(length, sizes.longest - SPECIAL)), different)))
            for length in lengths
        )
        yield json.dumps({"query": query, "document": document}) + "\n"


def write_encoder(sizes: PairSizes, vocabulary: Tokenizer, folder: Path) -> None:
    """Write an encoder with random weights as a folder of sentence-transformers: mean pooling, cosine."""
    dropouts = {"hidden_dropout_prob": sizes.dropout, "attention_probs_dropout_prob": sizes.dropout}
    trunk = {**bert(sizes.layers, sizes.hidden, sizes.longest), **dropouts}
    values = values_of(sizes, folder)
    method = {**values["method"], "pooling": "mean", "similarity": "cosine"}
    recipe = build(FinetuneRecipe, {**values, "trunk": trunk, "method": method}, "benchmark")
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.method, new_trunk(trunk, vocabulary))
    export_encoder(TrainedModel(model.eval(), recipe.method, vocabulary, folder, recipe, step=0), folder / "encoder")


def bert(layers: int, hidden: int, longest: int) -> dict[str, Any]:
    """Return the keys of a BERT of BERT-base's proportions."""
    return {
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, hidden // HEAD),
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": longest,
    }


def values_of(sizes: PairSizes, folder: Path) -> dict[str, Any]:
    """Return the recipe's values without the encoder: the recipe of a user who has pairs and keeps the defaults."""
    negatives = "step" if sizes.micro < sizes.batch else "micro_batch"
    lengths = {"max_query_tokens": sizes.longest, "max_document_tokens": sizes.longest}
    return {
        "run": str(folder / "run"),
        "steps": 1_000_000,
        # sentence-transformers has no loss scaling without its Trainer: bf16 for both
        "deepspeed": "zero1_bf16" if torch.cuda.is_available() else "auto",
        "data": {"collection": str(folder / "collection"), "lanes": LANES, "window": 16},
        "batch": {"size": sizes.batch, "micro": sizes.micro},
        "method": {"name": "siamese", "negatives": negatives, **lengths},
        "optimizer": {"lr": 1e-4, "schedule": "constant"},
    }
