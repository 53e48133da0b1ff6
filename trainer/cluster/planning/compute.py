"""What a recipe computes for a micro-batch, counted without its weights."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.arrays import on_device
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.interface import MicroBatch
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.planning.kernels import Kernel, Kernels, attention_as_on_cuda
from deepsiam.trainer.training.engine.memory import bytes_per_token
from deepsiam.trainer.training.recipe.build import build_batcher, build_model, check_length, freeze_model, trunk_of
from deepsiam.trainer.training.recipe.schema import PretrainRecipe

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}  # ids of a made-up vocabulary
FIRST_PIECE = 10  # of made-up text: smaller ids may be special tokens
SENTENCE, SENTENCES, DOCUMENTS = 24, 40, 64  # made-up text: tokens, per document, at once


@dataclass(frozen=True)
class MadeUp:
    """A document of random tokens."""

    segments: Sequence[np.ndarray]
    group: str
    headings: tuple[int, ...] = ()
    context: int = 0


@dataclass(frozen=True)
class MadeUpTeacher:
    """A teacher of equal vectors; one number stands for vectors of any width."""

    width: int

    def vectors(self, side: str, keys: np.ndarray) -> np.ndarray:
        """Return a vector for each key."""
        return np.ones((len(keys), self.width), np.float32)


@dataclass(frozen=True)
class Work:
    """What a recipe computes."""

    parameters: int  # of the whole model
    trained: tuple[int, ...]  # the sizes of the trained parameters
    kernels: Mapping[Kernel, int]  # of a micro-batch, forward and backward, and how often each is started
    examples: int  # of that micro-batch
    tokens: float  # of text in an example
    kept_bytes: float  # the least that the trunk's layers keep of an example for the backward pass
    batching: float  # seconds that one core here took to make an example from token documents

    @property
    def flops(self) -> float:
        """The FLOPs of an example's matrix products, attention included, forward and backward."""
        return sum(number * kernel.flops for kernel, number in self.kernels.items()) / self.examples


@dataclass(frozen=True)
class MeasuredSpeed:
    """How fast a rank computes, as a benchmark measured it: the optimizer is in it."""

    flops: float  # attained per second, in matrix products

    def micro_batch(self, work: Work, examples: int) -> float:
        """Return the seconds of a micro-batch, forward and backward."""
        return examples * work.flops / self.flops

    def optimizer(self, trained: int, partitions: int) -> float:
        """Return the seconds of the optimizer besides."""
        return 0.0


class _Unasked(TorchDispatchMode):
    """Answers False where a model asks about data."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute an operation, except one that asks: ModernBERT asks whether there is no padding."""
        if function is torch.ops.aten._local_scalar_dense.default:
            return False
        return function(*args, **(kwargs or {}))


def count(recipe: PretrainRecipe, vocab_size: int, dtype: torch.dtype = torch.bfloat16) -> Work:
    """Count a micro-batch of a recipe on the meta device, where tensors have a shape and no memory.

    The text is made up: sentences of 24 tokens in documents of 960 tokens. Attention is that of CUDA. Raise InputError
    if the recipe describes no trunk, or one that cannot be built.
    """
    vocabulary = Vocabulary(vocab_size, **SPECIAL)
    model = _model(recipe, vocabulary).to(dtype)
    batch, batching = made_up_batch(recipe.method, vocabulary, recipe.batch.micro)
    with attention_as_on_cuda(), Kernels() as kernels, _Unasked():
        try:
            sum(model(**on_device(batch.arrays, "meta")).values()).backward()
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(f"trunk: this model cannot be counted without its weights: {error}") from None
    parameters = list(model.parameters())
    examples = recipe.batch.micro
    return Work(
        parameters=sum(parameter.numel() for parameter in parameters),
        trained=tuple(parameter.numel() for parameter in parameters if parameter.requires_grad),
        kernels=Counter(kernels.started),
        examples=examples,
        tokens=batch.tokens / examples,
        kept_bytes=float(recipe.method.example_tokens * bytes_per_token(recipe, model)),
        batching=batching,
    )


def vocabulary_of(recipe: PretrainRecipe, size: int | None) -> int:
    """Return the size of the vocabulary: as given, or the trunk's; raise InputError where neither is known."""
    size = size or (recipe.trunk or {}).get("vocab_size")
    if isinstance(size, int) and size <= FIRST_PIECE:
        raise InputError(f"a vocabulary of {size} pieces has no words: give more than {FIRST_PIECE}")
    if not isinstance(size, int):
        raise InputError(
            "trunk.vocab_size: the recipe takes it from its data: add trunk.vocab_size=N, or --vocabulary N"
        )
    return size


def measured_speed(results: Mapping[str, Any], recipe: PretrainRecipe, case: str | None, where: str) -> MeasuredSpeed:
    """Return the speed that `benchmarks.step` measured: FLOP a token times tokens a second.

    `results` are those of its JSON file, named `where` in errors. Without the name of a `case`, the last one of the
    recipe's method is used, which is the largest.
    """
    try:
        cases = results["cases"]
        names = [n for n, case_result in cases.items() if case_result["recipe"].rsplit("_", 1)[0] == recipe.method.name]
        name = case or (names[-1] if names else "")
        if name not in cases:
            problem = f"no case {case!r}" if case else f"no case of method {recipe.method.name}"
            raise InputError(f"{where}: {problem}; choose with --case: {', '.join(cases)}")
        rate = cases[name]["rivals"]["deepsiam"]["tokens_per_second"]["median"]
        return MeasuredSpeed(cases[name]["flops_per_token"] * rate)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: not a result of benchmarks.step: {error!r} is missing or wrong") from None


def _model(recipe: PretrainRecipe, vocabulary: Vocabulary) -> TrunkModel:
    if recipe.trunk is None:
        raise InputError("trunk: a plan needs the sizes of the trunk: describe it in place of init_from")
    method, size = recipe.method, vocabulary.vocab_size
    with torch.device("meta"):
        trunk = trunk_of({**recipe.trunk, "vocab_size": size, "pad_token_id": vocabulary.pad}, "trunk")
        if more_rows := method.added_tokens + method.markers:
            trunk.resize_token_embeddings(size + more_rows, mean_resizing=False)
        for key, tokens in method.input_lengths.items():
            check_length(key, tokens, trunk)
        model = build_model(method, trunk)
    freeze_model(model, recipe)
    if recipe.activation_checkpointing:
        recompute_layers(model)
    return model


def made_up_batch(method: PretrainingConfig, vocabulary: Vocabulary, number: int) -> tuple[MicroBatch, float]:
    """Make a micro-batch of made-up text; return it and the seconds per example: cutting a window, making arrays.

    The texts of a pair fill an input.
    """
    batcher, rng = build_batcher(method, vocabulary), np.random.default_rng(0)
    if method.learns_vectors:
        batcher = TaughtBatcher(batcher, MadeUpTeacher(getattr(method, "teacher_width", None) or 1))
    documents: list[MadeUp] = []
    examples: list[Any] = []
    cutting, sentence = 0.0, SENTENCE
    while len(examples) < number:
        for _ in range(DOCUMENTS):
            lengths = [method.positions] * 2 if method.needs_pairs else [sentence] * SENTENCES
            sentences = [rng.integers(FIRST_PIECE, vocabulary.vocab_size, length) for length in lengths]
            documents.append(MadeUp(sentences, f"group {len(documents) // 4}"))
        count, began = len(examples), time.perf_counter()
        examples = batcher.examples(documents)
        cutting = time.perf_counter() - began
        if len(examples) == count:  # too long for the method's inputs
            documents, sentence = [], sentence // 2
            if not sentence:
                raise InputError(f"{' or '.join(method.input_lengths)}: no example is this short: raise it")
    generators = [np.random.default_rng(number) for number in range(number)]
    began = time.perf_counter()
    batch = batcher.micro_batch(examples[:number], generators)
    return batch, cutting / len(examples) + (time.perf_counter() - began) / number
