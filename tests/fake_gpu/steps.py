"""Optimizer steps, evaluation and embedding by the engine as rank 0 of 8, on the fake GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.cluster.planning.kernels import Kernels
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.objective import Objective
from deepsiam.trainer.training.run.agree import exchange
from deepsiam.trainer.training.run.health import Health
from tests.fake_gpu import deepspeed_device
from tests.fake_gpu.deepspeed_device import RANKS
from tests.fake_gpu.device import GPU, to_gpu
from tests.fake_gpu.inputs import batch_of, recipe_of, trunk_of
from tests.fake_gpu.passes import Count
from tests.fake_gpu.watch import Watch

FILES = ("zero1_bf16", "zero2_fp16", "zero3_bf16")  # each stage and each precision
OF_ALL = ("siamese", "method.negatives=step")  # negatives of the whole step: GradCache
MICRO_BATCHES = 2  # of this rank
STEPS = 2  # the last is counted: ZeRO-3 traces the order of modules in the first


def cases() -> Iterator[tuple[str, Callable[[], Count]]]:
    """Yield every case's name and what counts it."""
    deepspeed_device.install()
    for file in FILES:
        yield f"step/{file}", partial(step, file, "mlm")
    yield "step/negatives of the step", partial(step, "zero1_bf16", *OF_ALL)
    yield "step/regularisers of the step", partial(step, "zero1_bf16", "sparse")
    yield "exchange between steps", partial(between_steps, "mlm")
    yield "evaluate", partial(evaluate, "mlm")
    yield "embed", partial(embed, *OF_ALL)


def step(file: str, *method: str) -> Count:
    """Count an optimizer step."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        engine, batch = _engine(file, *method)
        for _ in range(STEPS):
            kernels, watch = _count_step(engine, [batch] * MICRO_BATCHES)
    return {"kernels": len(kernels.started), "waits": watch.waits, "copies": watch.copies, "pageable": watch.pageable}


def _count_step(engine: Engine, batches: Sequence[MicroBatch]) -> tuple[Kernels, Watch]:
    """Take an optimizer step on this rank's micro-batches, as if all ranks had such."""
    targets = {term: RANKS * sum(batch.counts[term] for batch in batches) for term in batches[0].counts}
    # what step negatives ask: the numbers of documents, and of vectors of each, in every micro-batch
    documents = len(batches[0].arrays.get("document_keys", ()))
    asked = {"gather": [[[documents, 1, 1]] * len(batches) * RANKS]}
    with Kernels(GPU) as kernels, Watch(asked) as watch:
        objectives = [Objective(engine.methods[0], engine.methods[0].weights, targets)] * len(batches)
        engine.step(batches, objectives, range(len(batches)), 1e-4)
    return kernels, watch


def between_steps(method: str) -> Count:
    """Count what the loop does between two steps: it judges the last one and agrees on the next."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        engine, batch = _engine("zero1_bf16", method)
        with Watch():
            targets = {term: RANKS * count for term, count in batch.counts.items()}
            result = engine.step([batch], [Objective(engine.methods[0], engine.methods[0].weights, targets)], [1], 1e-4)
        health = Health(None, engine, None)  # type: ignore[arg-type]  # a sound step needs neither recipe nor order
        health.expect(1, [], result)
        with Kernels(GPU) as kernels, Watch({"exchange": [[1, 0, 0, 0, 0]]}) as watch:
            *_, bad, still = exchange(engine, health, [1, 0, 0])
            assert health.judge(bad, still)
    return {"kernels": len(kernels.started), "waits": watch.waits, "copies": watch.copies, "pageable": watch.pageable}


def evaluate(method: str) -> Count:
    """Count an evaluation."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        engine, batch = _engine("zero1_bf16", method)
        with Kernels(GPU) as kernels, Watch() as watch:
            engine.evaluate(batch)
    return {"kernels": len(kernels.started), "waits": watch.waits}


def embed(*method: str) -> Count:
    """Count the embedding of texts."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        engine, batch = _engine("zero1_bf16", *method)
        with Kernels(GPU) as kernels, Watch() as watch:
            engine.embed(batch.arrays["query_ids"], batch.arrays["query_mask"])
    return {"kernels": len(kernels.started), "waits": watch.waits}


def _engine(file: str, name: str, *changes: str) -> tuple[Engine, MicroBatch]:
    """Return an engine around a small model, and a micro-batch for it."""
    recipe = recipe_of(name, *changes)
    batch = batch_of(recipe)
    sizes = recipe.batch.model_copy(update={"size": recipe.batch.micro * MICRO_BATCHES * RANKS})
    recipe = recipe.model_copy(update={"deepspeed": file, "batch": sizes})
    with unset_fake_temporarily():
        model = build_model(recipe.method, trunk_of(recipe, "bert"))
    to_gpu(model, torch.float16 if "fp16" in recipe.deepspeed else torch.bfloat16)
    Watch()  # initialising may wait
    return Engine(model.train(), recipe, World(0, RANKS, 0, RANKS)), batch
