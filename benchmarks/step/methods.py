"""Training tokens a second, and memory, of each method compared with the plain way, side by side.

    python -m benchmarks.step.methods [--methods seed mlm ...] [--rounds 5] [--out FILE.json]

The plain way is in benchmarks.step.plain_way; before measuring, its losses are checked to be the same. ICT and pairs
have no logits, and all sequences of Cross-Thought have the same length, so only one of the differences remains there.
Memory is measured in a separate process for each: the highest resident size during a step, minus the size before it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.made_up_text import make_document
from benchmarks.common.side_by_side import alternate, in_words, ratios, spread, write
from benchmarks.common.step_cases import rate_of_pass
from benchmarks.step.plain_way import plain_arrays, plain_layers
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import MicroBatch
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.registry import PRETRAINING
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.planning.compute import MadeUpTeacher
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build

SIZES = {"tokens": 512, "vocab": 32768, "hidden": 256, "layers": 4, "batch": 8}


def method_of(name: str, tokens: int) -> PretrainingConfig:
    """Return a method with its default keys, for inputs of `tokens` tokens."""
    keys: dict[str, Any] = {"name": name}
    if name == "cross_thought":
        keys |= {"sequences": 8, "sequence_tokens": 64}
    elif name == "poly":
        keys |= {"max_tokens": 128, "tokens": 1024}  # pairs of sentences, in groups
    elif name in ("pairs", "distil"):
        keys |= {"max_query_tokens": tokens, "max_document_tokens": tokens}
    elif name != "skip_thought":
        keys["max_tokens"] = tokens
    values = {"run": "r", "steps": 1, "data": {"shards": "s"}, "batch": {"size": 2, "micro": 2}, "trunk": {}}
    return build(PretrainRecipe, {**values, "optimizer": {"lr": 1e-3}, "method": keys}, name).method


def model_and_batch(name: str, sizes: dict[str, int]) -> tuple[TrunkModel, MicroBatch]:
    """Make a method's model and one micro-batch of made-up text."""
    torch.manual_seed(0)
    method = method_of(name, sizes["tokens"])
    vocabulary = Vocabulary(sizes["vocab"], pad=0, unk=1, cls=2, sep=3, mask=4)
    causal = {"is_decoder": True} if name == "clm" else {}
    trunk = build_trunk(
        {
            "model_type": "bert",
            "vocab_size": sizes["vocab"] + method.added_tokens,
            "pad_token_id": 0,
            "hidden_size": sizes["hidden"],
            "num_hidden_layers": sizes["layers"],
            "num_attention_heads": sizes["hidden"] // 64 or 1,
            "intermediate_size": 4 * sizes["hidden"],
            "max_position_embeddings": max(method.positions, 512),
            **causal,
        }
    )
    batcher = method.batcher(vocabulary)
    if method.learns_vectors:
        batcher = TaughtBatcher(batcher, MadeUpTeacher(sizes["hidden"]))
    rng = keyed_rng("benchmark text")
    # enough for a micro-batch of any method
    documents = [make_document(rng, vocabulary, range(2, 12), log_tokens=3.0) for _ in range(40 * sizes["batch"])]
    if method.needs_pairs:
        documents = [TokenDocument(document.segments[:2]) for document in documents]
    examples = batcher.examples(documents)[: sizes["batch"]]
    batch = batcher.micro_batch(examples, keyed_rngs("benchmark", [(i,) for i in range(len(examples))]))
    return method.model(trunk), batch


def plain_losses(model: TrunkModel, method: PretrainingConfig, **arrays: Tensor) -> dict[str, Tensor]:
    """Compute the method's losses the plain way: the same numbers."""
    with plain_layers():
        return model.forward(**plain_arrays(method, arrays))


def ways_of(name: str, sizes: dict[str, int]) -> tuple[TrunkModel, MicroBatch, dict[str, Callable[..., Any]]]:
    """Return a method's model, a micro-batch, and the two ways to compute its losses."""
    model, batch = model_and_batch(name, sizes)
    method = method_of(name, sizes["tokens"])
    return model, batch, {"deepsiam": model.forward, "plain": partial(plain_losses, model, method)}


def agree(model: TrunkModel, batch: MicroBatch, plain: Callable[..., dict[str, Tensor]]) -> None:
    """Raise AssertionError where the two ways differ in a loss."""
    arrays = {name: torch.from_numpy(array) for name, array in batch.arrays.items()}
    model.eval()
    with torch.no_grad():
        for term, loss in model.forward(**arrays).items():
            torch.testing.assert_close(plain(**arrays)[term], loss, rtol=1e-4, atol=1e-2)
    model.train()


def peak(name: str, way: str, sizes: dict[str, int], bf16: bool) -> float:
    """Return the bytes that a step of one way needs beyond model and gradients, measured in a separate process."""
    command = [sys.executable, "-m", "benchmarks.step.methods", "--peak", name, way, "--sizes", json.dumps(sizes)]
    done = subprocess.run([*command, *(["--bf16"] if bf16 else [])], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def _peak_here(name: str, way: str, sizes: dict[str, int], dtype: torch.dtype) -> float:
    model, batch, ways = ways_of(name, sizes)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # not counted: the pass frees and reallocates as much
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to VmRSS
    rate_of_pass(model, batch, ways[way], dtype)
    return _resident("VmHWM") - before


def _resident(what: str) -> float:
    """Return the present (VmRSS) or highest (VmHWM) resident size of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return float(line.split()[1]) * 1024
    raise InputError(f"/proc/self/status: has no {what}; memory is measured on Linux only")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.step.methods", description=__doc__.splitlines()[0])
    names = [*PRETRAINING]
    parser.add_argument("--methods", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--sizes", type=json.loads, default={}, metavar="JSON", help=f"of {SIZES}")
    parser.add_argument("--bf16", action="store_true", help="autocast; fp32 otherwise")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    sizes = {**SIZES, **chosen.sizes}
    dtype = torch.bfloat16 if chosen.bf16 else torch.float32
    with exit_on_input_error("benchmarks.step.methods"):
        if chosen.peak:
            print(_peak_here(*chosen.peak, sizes, dtype))
            return
        results: dict[str, Any] = {"sizes": sizes, "precision": "bf16" if chosen.bf16 else "fp32"}
        for name in chosen.methods:
            model, batch, forwards = ways_of(name, sizes)
            agree(model, batch, forwards["plain"])
            ways = {way: partial(rate_of_pass, model, batch, forward, dtype) for way, forward in forwards.items()}
            for take in ways.values():
                take()
            rates = alternate(ways, chosen.rounds)
            memory = {way: peak(name, way, sizes, chosen.bf16) for way in ways}
            result: dict[str, Any] = {"tokens_per_second": {way: spread(values) for way, values in rates.items()}}
            result["peak_bytes"] = memory
            print(in_words(f"{name}: tokens/s", result["tokens_per_second"]["deepsiam"]), flush=True)
            result["speed_ratio"] = ratios(rates["deepsiam"], rates["plain"])
            result["memory_ratio"] = memory["deepsiam"] / memory["plain"]
            print(in_words(f"{name}: speed against the plain way", result["speed_ratio"]))
            print(f"{name}: memory of a step against the plain way {result['memory_ratio']:.2f}", flush=True)
            results[name] = result
        if chosen.out:
            write(chosen.out, results)


if __name__ == "__main__":
    main()
