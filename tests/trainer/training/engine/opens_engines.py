"""Open DeepSpeed's engines as a run does; print precisions, whether the compiler was imported, and norms as JSON.

The norms are of three steps under the file `cpu`, then under the one that is named; the last is of a NaN weight.
"""

import json
import os
import sys

import torch

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.trainer.cluster.planning.compute import SPECIAL, made_up_batch
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.objective import objectives
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests.models.tiny import Spelled
from tests.toy import SEED_RECIPE, TRUNK

SMALL = {"batch": {"size": 4, "micro": 2}, "method": {"name": "mlm", "max_tokens": 32}}
SETTINGS = {**TRUNK, "model_type": "modernbert", "vocab_size": 40, "pad_token_id": 0}


def opened(deepspeed: str) -> tuple[Engine, PretrainRecipe]:
    recipe = build(PretrainRecipe, {**SEED_RECIPE, **SMALL, "deepspeed": deepspeed}, "test")
    return Engine(Mlm(build_trunk(SETTINGS)), recipe, World.from_environment()), recipe


def norms(deepspeed: str) -> list[float]:
    torch.manual_seed(1)
    engine, recipe = opened(deepspeed)
    batches = [made_up_batch(recipe.method, Spelled(40, **SPECIAL), 2)[0]] * 2
    both = objectives([recipe.method], 0, [2], [{"mlm": 2 * batches[0].counts["mlm"]}]) * 2
    found = [engine.step(batches, both, [1, 2], 1e-3).grad_norm.item() for _ in range(2)]
    with torch.no_grad():
        next(engine.model.parameters()).fill_(float("nan"))
    return [*found, engine.step(batches, both, [1, 2], 1e-3).grad_norm.item()]


if __name__ == "__main__":
    join(World.from_environment())
    in_bf16 = opened("zero1_bf16")[0].model
    rotary = {str(buffer.dtype) for name, buffer in in_bf16.named_buffers() if name.endswith("inv_freq")}
    weights = {str(parameter.dtype) for parameter in in_bf16.parameters()}
    has_compiler = "torch._inductor.compile_fx" in sys.modules
    print(json.dumps([[*rotary], [*weights], has_compiler, norms("cpu"), norms(sys.argv[-1])]), flush=True)
    os._exit(0)  # a live process-group thread may abort the interpreter's shutdown
