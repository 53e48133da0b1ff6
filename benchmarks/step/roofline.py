"""Predict the time of optimizer steps on 8 H100: python -m benchmarks.step.roofline [--label before] [--out FILE]

Nothing is measured, and no GPU is needed. `Engine.step` runs under DeepSpeed as rank 0 of 8 on the fake GPU of
`tests/fake_gpu`, with the recipes' own models at full size. Every kernel that it starts, DeepSpeed's among them, is
counted with its bytes and FLOPs; `trainer/cluster/planning/roofline.py` says how long an H100 would take, and what that
assumes. Communication is not in it: `python -m trainer.plan` adds it.

    seed, mlm       recipes/seed_base.yaml, recipes/mlm_base.yaml on 8 ranks
    siamese         recipes/finetune.yaml with BERT-base: batch.size=1024 batch.micro=128
    siamese-32      the same with batch.size=256 batch.micro=32

Made-up queries have 4 to 16 tokens, documents 90 on average and up to 250.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from data_prep.common.rng import keyed_rngs
from data_prep.tokenizers.vocabulary import Vocabulary
from models.batching.candidates import Candidates, Example
from models.interface import MicroBatch
from tests.fake_gpu import deepspeed_device, device, watch
from trainer.cluster.planning.compute import SPECIAL, made_up_batch
from trainer.cluster.planning.kernels import Kernel
from trainer.cluster.planning.roofline import Roofline
from trainer.training.engine.hardware import DEVICES
from trainer.training.recipe.build import build_model, trunk_of
from trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from trainer.training.recipe.yaml_file import load

RECIPES = Path(__file__).parents[2] / "recipes"
RESULTS = Path(__file__).parents[1] / "results" / "roofline.json"
RANKS, WORDS, TEXTS = 8, 30_522, 4096
CASES = {
    "seed": ("seed_base.yaml",),
    "mlm": ("mlm_base.yaml",),
    "siamese": ("finetune.yaml", "batch.size=1024", "batch.micro=128"),
    "siamese-32": ("finetune.yaml", "batch.size=256", "batch.micro=32"),
}
HEAVIEST = 12


@dataclass(frozen=True)
class Predicted:
    """A rank's optimizer step."""

    examples: int
    tokens: int
    kernels: int
    waits: int
    tflop: float
    gigabytes: float
    milliseconds: float
    device_milliseconds: float  # if Python were never late
    share_of_peak: float
    heaviest: dict[str, dict[str, float]]  # by operation: number, milliseconds, gigabytes


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--label", default="now", help="name of the column, such as before (%(default)s)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to add to (%(default)s)")
    chosen = parser.parse_args()
    device.install()
    watch.install()
    deepspeed_device.install()
    results = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for name in chosen.cases:
        results.setdefault(chosen.label, {})[name] = asdict(predict(*CASES[name]))
        print(table({chosen.label: {name: results[chosen.label][name]}}), flush=True)
    chosen.out.write_text(json.dumps(results, indent=1) + "\n")


def predict(recipe_name: str, *changes: str) -> Predicted:
    """Count a rank's step and return its time on an H100."""
    from tests.fake_gpu.steps import count_step, engine_around  # after the accelerator is in place

    pretraining = "_base" in recipe_name
    kind: type[Recipe] = PretrainRecipe if pretraining else FinetuneRecipe
    recipe = load(kind, RECIPES / recipe_name, [*changes, "deepspeed=zero1_bf16"])
    batches = [_micro_batch(recipe)] * (recipe.batch.micro_batches // RANKS)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with unset_fake_temporarily():
            model = _model(recipe)
        engine = engine_around(model, recipe)
        kernels, waited = count_step(engine, batches)
    return _predicted(kernels.started, sum(waited.waits.values()), batches)


def _predicted(started: list[Kernel], waits: int, batches: list[MicroBatch]) -> Predicted:
    gpu = DEVICES["h100"]
    roofline, counted = Roofline(gpu), Counter(started)
    by_name: dict[str, dict[str, float]] = {}
    for kernel, number in counted.items():
        row = by_name.setdefault(kernel.name, {"number": 0, "milliseconds": 0.0, "gigabytes": 0.0})
        row["number"] += number
        row["milliseconds"] += 1e3 * number * roofline.seconds(kernel)
        row["gigabytes"] += number * kernel.bytes / 1e9
    heaviest = sorted(by_name, key=lambda name: -by_name[name]["milliseconds"])[:HEAVIEST]
    flops = sum(kernel.flops for kernel in started)
    seconds = roofline.total(counted)
    return Predicted(
        examples=sum(next(iter(batch.arrays.values())).shape[0] for batch in batches),
        tokens=sum(batch.tokens for batch in batches),
        kernels=len(started),
        waits=waits,
        tflop=flops / 1e12,
        gigabytes=sum(kernel.bytes for kernel in started) / 1e9,
        milliseconds=1e3 * seconds,
        device_milliseconds=sum(row["milliseconds"] for row in by_name.values()),
        share_of_peak=flops / seconds / gpu.peak,
        heaviest={name: {key: round(value, 3) for key, value in by_name[name].items()} for name in heaviest},
    )


def table(results: Mapping[str, Mapping[str, Mapping[str, object]]]) -> str:
    """Return the predictions as text."""
    lines = []
    for label, cases in results.items():
        for name, one in cases.items():
            lines.append(
                f"{label:8} {name:10} {one['milliseconds']:7.1f} ms  {one['share_of_peak']:6.1%} of the peak  "
                f"{one['kernels']:6} kernels  {one['waits']:3} waits  {one['tflop']:6.2f} TFLOP  "
                f"{one['gigabytes']:6.1f} GB  device alone {one['device_milliseconds']:.1f} ms"
            )
            lines += [
                f"    {row['milliseconds']:8.2f} ms {row['number']:6.0f} x {operation:48} {row['gigabytes']:7.2f} GB"
                for operation, row in one["heaviest"].items()
            ]
    return "\n".join(lines)


def _vocabulary(recipe: Recipe) -> Vocabulary:
    return Vocabulary((getattr(recipe, "trunk", None) or {}).get("vocab_size", WORDS), **SPECIAL)


def _model(recipe: Recipe) -> torch.nn.Module:
    base = load(PretrainRecipe, RECIPES / "seed_base.yaml").trunk or {}
    trunk = getattr(recipe, "trunk", None) or base
    vocabulary = _vocabulary(recipe)
    with torch.device("meta"):
        built = trunk_of({**trunk, "vocab_size": vocabulary.vocab_size, "pad_token_id": vocabulary.pad}, "trunk")
        return build_model(recipe.method, built)


def _micro_batch(recipe: Recipe) -> MicroBatch:
    vocabulary = _vocabulary(recipe)
    if isinstance(recipe, PretrainRecipe):
        return made_up_batch(recipe.method, vocabulary, recipe.batch.micro)[0]
    corpus = _Corpus(vocabulary, recipe.method.max_document_tokens)
    rng, number = np.random.default_rng(1), recipe.batch.micro
    examples = [
        Example(
            rng.integers(10, vocabulary.vocab_size, rng.integers(4, 17)), np.array([i]), np.ones(1, np.float32), [i]
        )
        for i in range(number)
    ]
    batcher = recipe.method.batcher(vocabulary, Candidates(corpus, np.arange(TEXTS)))
    return batcher.micro_batch(examples, keyed_rngs("roofline", [(i,) for i in range(number)]))


class _Corpus:
    def __init__(self, vocabulary: Vocabulary, most: int) -> None:
        rng = np.random.default_rng(0)
        lengths = np.exp(rng.normal(np.log(83), 0.4, TEXTS)).astype(int).clip(8, most - 2)
        self.texts = [rng.integers(10, vocabulary.vocab_size, length) for length in lengths]

    def tokens(self, i: int) -> np.ndarray:
        return self.texts[i]


if __name__ == "__main__":
    main()
