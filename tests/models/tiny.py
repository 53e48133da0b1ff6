"""Small models and documents for the tests of models/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from deepsiam.data_prep.tokenizers.prompt import Prompt
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.packing import pack
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import MicroBatch
from deepsiam.models.pretraining.config import PretrainingConfig

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Spelled(Vocabulary):
    """Tokens whose texts are known: w7 is the token 7, and any other character is a token after the special ones.

    Prompts have a token for each letter, whatever text is behind them.
    """

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text."""
        read = [re.findall(r"w\d+|.", text, re.DOTALL) for text in texts]
        return [np.array([int(t[1:]) if t[1:] else 5 + ord(t) % 35 for t in tokens], np.uint16) for tokens in read]

    def filled(self, parts: Sequence[str]) -> np.ndarray:
        """The ids of parts together; none spells a special token out."""
        return self.encode(["".join(parts)])[0].astype(np.int64)

    def clipped(self, text: str, most: int, kept: str) -> tuple[str, int]:
        """The first or last tokens of a text, and how many."""
        tokens = re.findall(r"w\d+|.", text, re.DOTALL)
        tokens = tokens[max(0, len(tokens) - most) :] if kept == "end" else tokens[:most]
        return "".join(tokens), len(tokens)

    def prompt(self, text: str) -> Prompt:
        """`a` has id 7."""
        ids = tuple(7 + ord(letter) - ord("a") for letter in text)
        return Prompt(text, ids, ids, apart=True, added_tokens=(), encode=list, decode=str)


class LongFrame(Vocabulary):
    """A tokenizer's, which puts two tokens before and two after a text."""

    text_frame = ((2, 2), (3, 3))


VOCABULARY = Spelled(vocab_size=40, pad=0, unk=1, cls=2, sep=3, mask=4)
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
    "initializer_range": 0.3,  # large, so that every dependence is visible
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def trunk(**config: Any) -> PreTrainedModel:
    """Build an fp64 BERT, without dropout unless `config` sets it; every call gives the same weights."""
    torch.manual_seed(0)
    return build_trunk({**CONFIG, **config}).double()


def perturbed(model: AnyModule) -> AnyModule:
    """Cast the model to fp64 and draw its biases and LayerNorms at random: their 0 and 1 would hide mistakes."""
    for parameter in model.double().parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model


class Text(list[np.ndarray]):
    """A document (`models.interface.TokenDocument`) that is the list of its segments."""

    def __init__(
        self, segments: Iterable[np.ndarray], headings: Iterable[int] = (), context: int = 0, group: str = ""
    ) -> None:
        super().__init__(segments)
        self.segments = self
        self.headings = frozenset(headings)
        self.context = context
        self.group = group


def documents(*lengths: Sequence[int], rng: int = 0) -> list[Text]:
    """Draw documents of ordinary tokens, one for each list of sentence lengths."""
    generator = np.random.default_rng(rng)
    return [Text(generator.integers(5, VOCABULARY.vocab_size, n) for n in document) for document in lengths]


class HashedTeacher:
    """A teacher whose vector of a text, fp32 [width], is drawn by the text's key and its side."""

    def __init__(self, width: int) -> None:
        self.width = width

    def vectors(self, side: str, keys: np.ndarray) -> np.ndarray:
        """The vectors of texts."""
        seeds = [(len(side), int(key) % 2**64) for key in keys]
        return np.array([np.random.default_rng(seed).normal(size=self.width) for seed in seeds], np.float32)


def rngs(number: int, start: int = 0) -> list[np.random.Generator]:
    """Return a generator for each example."""
    return [np.random.default_rng(start + i) for i in range(number)]


def rekeyed(number: int, start: int = 0) -> Iterator[np.random.Generator]:
    """Yield the generators of `rngs` as a single one, re-keyed for each example, like the trainer's `keyed_rngs`."""
    generator = np.random.default_rng()
    for rng in rngs(number, start):
        generator.bit_generator.state = rng.bit_generator.state
        yield generator


def batch_of(config: PretrainingConfig, examples: Sequence[Any], start: int = 0) -> MicroBatch:
    """Make a method's micro-batch of examples by generators start, start + 1, ..."""
    return config.batcher(VOCABULARY).micro_batch(examples, rngs(len(examples), start))


def blocks(*lengths: Sequence[int], rng: int = 0) -> list[np.ndarray]:
    """Pack `documents(...)` into blocks, in their order."""
    return pack(documents(*lengths, rng=rng), MAX_TOKENS, "complete_doc", VOCABULARY)


EXAMPLES = blocks([20], [7, 5], [1], [2, 0, 2], rng=5)


def tensors(batch: MicroBatch | Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return the arrays of a micro-batch, or others, as the trainer passes them to forward."""
    arrays = batch.arrays if isinstance(batch, MicroBatch) else batch
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class Sizes(TorchDispatchMode):
    """Record the number of elements of every tensor that an operation allocates; a view allocates none."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        known = {x.untyped_storage().data_ptr() for x in args if torch.is_tensor(x)}
        results = out if isinstance(out, tuple | list) else [out]
        new = [x for x in results if torch.is_tensor(x) and x.untyped_storage().data_ptr() not in known]
        self.allocated += [x.numel() for x in new]
        return out
