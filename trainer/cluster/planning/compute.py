"""The arithmetic of a recipe's micro-batch, counted without its weights, and how long a device takes for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from data_prep.common.errors import InputError
from data_prep.tokenizers.vocabulary import Vocabulary
from models.config import PretrainingConfig
from models.interface import MicroBatch
from models.trunk import TrunkModel
from trainer.training.engine.activations import bytes_per_token
from trainer.training.engine.hardware import Device
from trainer.training.recipe.build import build_batcher, build_model, check_length, freeze_model, trunk_of
from trainer.training.recipe.schema import PretrainRecipe

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}  # ids of a made-up vocabulary
SENTENCE, SENTENCES, DOCUMENTS = 24, 40, 64  # made-up text: tokens, per document, at once
# bytes that an optimizer step moves per parameter: read gradient, master weight and two moments, write the last three,
# all in fp32, and write the weight in half precision
ADAM_BYTES = 30


@dataclass(frozen=True)
class MadeUp:
    """A document of random tokens."""

    segments: Sequence[np.ndarray]
    group: str
    headings: tuple[int, ...] = ()
    context: int = 0


@dataclass(frozen=True)
class Work:
    """What a recipe computes; all but `operations` grows n-fold for a micro-batch of n examples."""

    parameters: int  # of the whole model
    trained: tuple[int, ...]  # the sizes of the trained parameters
    flops: float  # of the matrix products of an example, forward and backward
    tokens: float  # of text in an example
    operations: int  # of PyTorch in a micro-batch, forward and backward, without views
    kept_bytes: float  # the least that the trunk's layers keep of an example for the backward pass
    batching: float  # seconds that one core here took to make an example from token documents


@dataclass(frozen=True)
class Speed:
    """How fast a rank computes: a roofline with an assumed efficiency, or what a benchmark measured."""

    flops: float  # attained per second, in matrix products
    operation: float  # seconds that Python takes to start one operation
    memory_bandwidth: float  # bytes a second
    measured: bool = False

    @classmethod
    def roofline(cls, device: Device, efficiency: float, operation: float) -> Speed:
        """Assume that a device attains a share `efficiency` of its peak, and that starting an operation takes time."""
        return cls(device.peak * efficiency, operation, device.memory_bandwidth)

    def micro_batch(self, work: Work, examples: int) -> float:
        """Return the seconds of a micro-batch, forward and backward: the slower of arithmetic and starting it."""
        return max(examples * work.flops / self.flops, work.operations * self.operation)

    def optimizer(self, trained: int, partitions: int) -> float:
        """Return the seconds of AdamW on a rank's part of the states; a measured rate contains them."""
        return 0.0 if self.measured else ADAM_BYTES * trained / partitions / self.memory_bandwidth


class _Operations(TorchDispatchMode):
    """Counts the operations that PyTorch executes, without views; answers False where a model asks about data."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._local_scalar_dense.default:
            return False  # ModernBERT asks whether there is no padding
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def count(recipe: PretrainRecipe, vocab_size: int) -> Work:
    """Count a micro-batch of a recipe on the meta device, where tensors have a shape and no memory.

    The text is made up: sentences of 24 tokens in documents of 960 tokens. Dropout is counted as on any device.

    Raises:
        InputError: the recipe does not describe its trunk, or the trunk that it describes cannot be built.
    """
    vocabulary = Vocabulary(vocab_size, **SPECIAL)
    model = _model(recipe, vocabulary)
    batch, batching = made_up_batch(recipe.method, vocabulary, recipe.batch.micro)
    arrays = {
        name: torch.empty(array.shape, dtype=torch.from_numpy(array[:0]).dtype, device="meta")
        for name, array in batch.arrays.items()
    }
    with FlopCounterMode(display=False) as flops, _Operations() as operations:
        try:
            sum(model(**arrays).values()).backward()
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(f"trunk: this model cannot be counted without its weights: {error}") from None
    parameters = list(model.parameters())
    examples = recipe.batch.micro
    return Work(
        parameters=sum(parameter.numel() for parameter in parameters),
        trained=tuple(parameter.numel() for parameter in parameters if parameter.requires_grad),
        flops=flops.get_total_flops() / examples,
        tokens=batch.tokens / examples,
        operations=operations.count,
        kept_bytes=float(recipe.method.example_tokens * bytes_per_token(recipe, model)),
        batching=batching,
    )


def vocabulary_of(recipe: PretrainRecipe, given: int | None) -> int:
    """Return the size of the vocabulary: as given, or the trunk's; raise InputError where neither is known."""
    size = given or (recipe.trunk or {}).get("vocab_size")
    if not isinstance(size, int):
        raise InputError(
            "trunk.vocab_size: the recipe takes it from its data: add trunk.vocab_size=N, or --vocabulary N"
        )
    return size


def measured_speed(results: Mapping[str, Any], recipe: PretrainRecipe, case: str | None, where: str) -> Speed:
    """Return the speed that `benchmarks.step` measured: FLOP a token times tokens a second.

    Args:
        results: the content of its JSON file.
        recipe: what is planned; without `case`, its method's last case is used, which is the largest.
        case: the name of a measured case.
        where: the file's name, for errors.
    """
    try:
        cases = results["cases"]
        of_method = [n for n, one in cases.items() if one["recipe"].rsplit("_", 1)[0] == recipe.method.name]
        name = case or (of_method[-1] if of_method else "")
        if name not in cases:
            what = f"no case {case!r}" if case else f"no case of method {recipe.method.name}"
            raise InputError(f"{where}: {what}; choose with --case: {', '.join(cases)}")
        rate = cases[name]["rivals"]["deepsiam"]["tokens_per_second"]["median"]
        return Speed(cases[name]["flops_per_token"] * rate, 0.0, 1.0, measured=True)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: not a result of benchmarks.step: {error!r} is missing or wrong") from None


def _model(recipe: PretrainRecipe, vocabulary: Vocabulary) -> TrunkModel:
    if recipe.trunk is None:
        raise InputError("trunk: a plan needs the sizes of the trunk: describe it in place of init_from")
    method, size = recipe.method, vocabulary.vocab_size
    with torch.device("meta"):
        trunk = trunk_of({**recipe.trunk, "vocab_size": size, "pad_token_id": vocabulary.pad}, "trunk")
        if added := method.added_tokens + method.markers:
            trunk.resize_token_embeddings(size + added, mean_resizing=False)
        check_length(f"method.{method.length_key}", method.positions, trunk)
        model = build_model(method, trunk)
    freeze_model(model, recipe.optimizer.train)
    return model


def made_up_batch(method: PretrainingConfig, vocabulary: Vocabulary, number: int) -> tuple[MicroBatch, float]:
    """Make a micro-batch of made-up text; return it and the seconds per example: cutting a window, making arrays."""
    batcher, rng = build_batcher(method, vocabulary), np.random.default_rng(0)
    documents: list[MadeUp] = []
    examples: list[Any] = []
    cutting = 0.0
    while len(examples) < number:
        for _ in range(DOCUMENTS):
            sentences = [rng.integers(10, vocabulary.vocab_size, SENTENCE) for _ in range(SENTENCES)]
            documents.append(MadeUp(sentences, f"group {len(documents) // 4}"))
        began = time.perf_counter()
        examples = batcher.examples(documents)
        cutting = time.perf_counter() - began
    generators = [np.random.default_rng(number) for number in range(number)]
    began = time.perf_counter()
    batch = batcher.micro_batch(examples[:number], generators)
    return batch, cutting / len(examples) + (time.perf_counter() - began) / number
