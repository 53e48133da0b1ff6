"""Forward and backward passes of every method, encoding, and planted faults, on the fake GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.arrays import on_device
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.planning.kernels import Kernels
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.recipe.build import build_model
from tests.fake_gpu.device import GPU, to_gpu
from tests.fake_gpu.inputs import RECIPES, TRUNKS, VOCABULARY, batch_of, recipe_of, suited, trunk_of
from tests.fake_gpu.watch import Watch

Count = dict[str, object]  # kernels, waits, ...
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FAULTS = ("device", "item", "mask", "copy", "none")


def cases() -> Iterator[tuple[str, Callable[[], Count]]]:
    """Yield every case's name and what counts it: each method with one type of trunk, in turn."""
    for i, method in enumerate(RECIPES):
        model_type, model = _first_fitting(method, i % len(TRUNKS))
        precision = ("bf16", "fp16")[i // len(TRUNKS) % 2]
        count = partial(one_pass, model, batch_of(recipe_of(method)), DTYPES[precision])
        yield f"{method}/{model_type}/{precision}", count
    yield "encode", encoded
    for fault in FAULTS:
        yield f"fault/{fault}", partial(faulty, fault)


def _first_fitting(method: str, start: int) -> tuple[str, TrunkModel]:
    """Build a method's model around the first type of trunk that it does not refuse; return the type too."""
    for model_type in [*TRUNKS][start:] + [*TRUNKS][:start]:
        recipe = suited(method, model_type)
        with suppress(InputError):
            return model_type, build_model(recipe.method, trunk_of(recipe, model_type))
    raise AssertionError(f"{method} refuses every trunk")


def one_pass(model: TrunkModel, batch: MicroBatch, dtype: torch.dtype) -> Count:
    """Count a forward and a backward pass, as the engine does them."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        to_gpu(model, dtype)
        model.train()
        with Kernels(GPU) as kernels, Watch() as watch:
            sums = model(**on_device(batch.arrays, GPU))
            assert all(loss.device.type == GPU and loss.dtype == torch.float32 for loss in sums.values())
            sum(sums.values()).backward()
        trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
        idle = [name for name, p in trained if p.grad is None or p.grad.device.type != GPU]
        assert not idle, f"no gradient on the GPU: {idle}"
    return {"kernels": len(kernels.started), "waits": watch.waits}


def encoded() -> Count:
    """Count the encoding of texts."""
    recipe = recipe_of("siamese")
    model = build_model(recipe.method, trunk_of(recipe, "bert"))
    rng = np.random.default_rng(0)
    texts = [rng.integers(10, VOCABULARY.vocab_size, n) for n in (40,) * 8 + (20,) * 8]
    with FakeTensorMode(allow_non_fake_inputs=True):
        to_gpu(model, torch.bfloat16)
        encoder = TextEncoder(model.eval().embed_documents, recipe.method.document_framing(VOCABULARY), GPU)
        with Kernels(GPU) as kernels, Watch() as watch:
            assert encoder.embeddings(texts).shape == (16, 64)
    return {"kernels": len(kernels.started), "waits": watch.waits}


class Faulty(nn.Module):
    """A layer that misuses a GPU in one of several ways."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.linear, self.fault = nn.Linear(4, 4), fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.fault == "device":
            return y + torch.arange(4)
        if self.fault == "item":
            return y * y.sum().item()
        if self.fault == "copy":
            return y + torch.arange(4).to(x.device)
        return y[x[:, 0] > 0] if self.fault == "mask" else y


def faulty(fault: str) -> Count:
    """Count a pass of `Faulty`."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = Faulty(fault)
        to_gpu(model, torch.float32)
        with Watch() as watch:
            model(torch.empty(3, 4, device=GPU)).sum().backward()
    return {"waits": watch.waits}
