"""The step benchmark with a case that takes milliseconds, in its own process, in which DeepSpeed joins the ranks.

python -m tests.benchmarks.step.tiny_steps [ARGUMENT ...]    prints, as JSON, the losses of three steps by rival, and
                                                             what is measured of a step of full size; then runs the
                                                             benchmark's own command
"""

import json
import sys
from typing import Any

from benchmarks.common import machine, side_by_side, step_cases
from benchmarks.common.step_cases import Case, recipe_of, workload_of
from benchmarks.common.training import join_alone
from benchmarks.step import __main__ as pretrain_step
from benchmarks.step import measures, on_gpu
from benchmarks.step.rivals import Bare, OurStep, Plain, TimedRival

TINY = (
    "deepspeed=cpu",
    "trunk.vocab_size=300",
    "trunk.hidden_size=32",
    "trunk.num_hidden_layers=1",
    "trunk.num_attention_heads=2",
    "trunk.intermediate_size=64",
    "trunk.hidden_dropout_prob=0",
    "trunk.attention_probs_dropout_prob=0",
)
FULL = (*TINY, "method.max_tokens=32", "batch.micro=2", "batch.size=16")
CASES = {
    "seed": Case("seed_base.yaml", cpu=(*TINY, "batch.size=4", "batch.micro=2", "method.max_tokens=32")),
    "mlm": Case("mlm_base.yaml", cpu=(*TINY, "batch.size=4", "batch.micro=2", "method.max_tokens=32")),
    "cross-thought": Case(
        "cross_thought_base.yaml", cpu=(*TINY, "batch.size=2", "method.sequences=4", "method.sequence_tokens=8")
    ),
    "poly": Case("poly_base.yaml", cpu=(*TINY, "batch.size=2", "method.max_tokens=64", "method.tokens=200")),
}


def losses() -> dict[str, list[list[float]]]:
    """The sums of the loss terms of SEED's first three steps, by rival."""
    workload = workload_of(recipe_of("seed", gpu=False, changes=["optimizer.lr=1e-2"]))
    kinds: list[type[TimedRival]] = [OurStep, Plain, Bare]
    return {kind.__name__: [_next(rival) for _ in range(3)] for kind in kinds for rival in [kind(workload)]}


def full_size() -> dict[str, Any]:
    """What is measured of masked LM whose micro-batches are recomputed."""
    on_gpu.ROUNDS = on_gpu.STEPS = on_gpu.WARM_UP = 1
    changes = ("trunk.vocab_size=1000", "batch.size=4", *on_gpu.WAYS["recomputed"])
    return on_gpu.measure(on_gpu.recipe_of("mlm", *FULL, *changes), 1e9, 1e12)


def _next(rival: TimedRival) -> list[float]:
    rival.step()
    return rival.losses.sum(0).tolist()


if __name__ == "__main__":
    side_by_side.MOST_ROUNDS, measures.COMPILING, machine.PEAK_SECONDS = 3, 10**6, 0.0  # end soon on a busy machine
    of_all = measures.cpu_memory
    measures.cpu_memory = lambda workload, rivals: of_all(workload, rivals[:1])  # a process for ours alone
    step_cases.CASES.clear()
    step_cases.CASES.update(CASES)
    join_alone()
    print(json.dumps({"losses": losses(), "full_size": full_size()}))
    pretrain_step.main(sys.argv[1:])
