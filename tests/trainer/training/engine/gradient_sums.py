"""The gradient that DeepSpeed makes of many micro-batches in bf16, against their exact sum, printed by rank 0 as JSON.

Run by each rank: `python -m tests.trainer.training.engine.gradient_sums CONFIG.json ...`
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param
from torch import Tensor, nn

from deepsiam.trainer.training.engine.world import World, join

MICRO_BATCHES, WIDTH = 32, 64


def backward(model: nn.Module, examples: Tensor) -> Tensor:
    """Return a micro-batch's loss; examples are [2, n, width]."""
    loss: Tensor = (model(examples[0]) * examples[1]).float().sum()
    return loss


def error(config: dict[str, Any], world: World) -> float:
    """Return the relative error of the summed gradient; SGD at a rate of 1 subtracts it from the fp32 weights."""
    torch.manual_seed(0)
    weights = torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16)
    examples = torch.randn(world.size, MICRO_BATCHES, 2, 8, WIDTH, dtype=torch.bfloat16)
    exact = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
    for batch in examples.flatten(0, 1):
        alone = nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16)
        alone.weight.data.copy_(weights)
        backward(alone, batch).backward()
        assert alone.weight.grad is not None
        exact += alone.weight.grad.double()
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    model.weight.data.copy_(weights)
    sizes = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": MICRO_BATCHES}
    rest = {"gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "steps_per_print": 1 << 30}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={**config, **sizes, **rest})
    before = safe_get_full_fp32_param(engine.module.weight).double()
    for batch in examples[world.rank]:
        engine.backward(backward(engine, batch) * (world.size * MICRO_BATCHES))
        engine.step()
    summed = before - safe_get_full_fp32_param(engine.module.weight).double()
    return float((summed - exact).norm() / exact.norm())


def main() -> None:
    """Print the error under each configuration."""
    world = World.from_environment()
    join(world)
    errors = [error(json.loads(Path(path).read_text()), world) for path in sys.argv[1:] if path.endswith(".json")]
    if world.rank == 0:
        print(json.dumps(errors), flush=True)
    dist.barrier()
    os._exit(0)  # a live process-group thread may abort the interpreter's shutdown


if __name__ == "__main__":
    main()
