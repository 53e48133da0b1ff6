"""Small models and documents for the tests of models/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from models.blocks import pack
from models.encoder import build_trunk
from models.seed import Seed, SeedBatcher
from models.task import Document, MicroBatch, Vocabulary

AnyModule = TypeVar("AnyModule", bound=nn.Module)
VOCABULARY = Vocabulary(vocab_size=40, pad=0, unk=1, cls=2, sep=3, mask=4)
MAX_TOKENS = 24

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": VOCABULARY.vocab_size,
    "pad_token_id": VOCABULARY.pad,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.3,  # large, so that every dependence shows
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def trunk(**config: Any) -> PreTrainedModel:
    """An fp64 BERT without dropout, unless `config` says otherwise; the same weights at each call."""
    torch.manual_seed(0)
    return build_trunk({**CONFIG, **config}).double()


def seed(config: dict[str, Any] | None = None, **options: Any) -> Seed:
    """An fp64 SEED model, no weight at a value that would hide a mistake."""
    return scattered(Seed(trunk(**(config or {})), **options))


def scattered(model: AnyModule) -> AnyModule:
    """The model in fp64, with biases and LayerNorms at no value that would hide a mistake."""
    for parameter in model.double().parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model


def documents(*lengths: Sequence[int], rng: int = 0) -> list[Document]:
    """Random documents, one a list of sentence lengths, of ordinary tokens."""
    generator = np.random.default_rng(rng)
    return [[generator.integers(5, VOCABULARY.vocab_size, n) for n in document] for document in lengths]


def rngs(number: int, start: int = 0) -> list[np.random.Generator]:
    """One generator an example."""
    return [np.random.default_rng(start + i) for i in range(number)]


def seed_batch(examples: Sequence[np.ndarray], start: int = 0, mlm: bool = True) -> MicroBatch:
    """SEED's micro-batch of blocks, masked by generators start, start + 1, ..."""
    return SeedBatcher(VOCABULARY, MAX_TOKENS, mlm=mlm).micro_batch(examples, rngs(len(examples), start))


def blocks(*lengths: Sequence[int], rng: int = 0) -> list[np.ndarray]:
    """The blocks of `documents(...)`, in their order."""
    return pack(documents(*lengths, rng=rng), MAX_TOKENS, "complete_doc", VOCABULARY)


def tensors(batch: MicroBatch) -> dict[str, Tensor]:
    """The arrays as the trainer hands them to forward."""
    return {name: torch.from_numpy(array) for name, array in batch.arrays.items()}


class Sizes(TorchDispatchMode):
    """Notes the number of elements of every tensor that an operation makes; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        known = {x.untyped_storage().data_ptr() for x in args if torch.is_tensor(x)}
        results = out if isinstance(out, tuple | list) else [out]
        new = [x for x in results if torch.is_tensor(x) and x.untyped_storage().data_ptr() not in known]
        self.made += [x.numel() for x in new]
        return out
