"""The curves that benchmarks.costs.curves measures: what grows, over which sizes, and by which expected law.

In a training step, everything that the curve is not about is small: a width of 192, one or two layers, a vocabulary of
1,024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.common.made_up_shards import CHUNKS_PER_SHARD, Reading, lengthen, resume, write_shards
from benchmarks.costs.pieces import Work, text_to_shards, train_step
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.models.layers.shape import Shape
from deepsiam.models.pretraining.seed_decoder import WeakDecoder

VOCABULARY = "trunk.vocab_size=1024"
SHAPE = Shape(1024, 192, 3, 768, "gelu", 0.0, 0.0, 1e-12, 0.02)  # that of recipes/seed_small.yaml
CHUNK = 32768  # tokens in a chunk of the shards whose lanes are resumed
RESUMED_SHARDS = 8  # distinct shards, each listed under several names
RESUMED_WINDOW = 4  # chunks


@dataclass(frozen=True)
class Curve:
    """The sizes of a curve, a function that prepares the work of one size, and the expected law."""

    prepare: Callable[[float, Path], Work]  # the folder is for the files of all sizes
    sizes: tuple[float, ...]
    unit: str
    exponent: str  # the expected exponent of the part that grows
    law: str


def step_curve(recipe: str, keys: tuple[str, ...], fixed: tuple[str, ...]) -> Callable[[float, Path], Work]:
    """Return a curve's `prepare`: a step of a recipe in which the `keys` are set to the size."""
    return lambda size, _: train_step(recipe, (*fixed, *(f"{key}={size:g}" for key in keys)))


def decoder(length: float, _: Path) -> Work:
    """Prepare forward and backward of SEED's weak decoder alone, 3 layers with window 2, on two sequences."""
    torch.manual_seed(0)
    model = WeakDecoder(SHAPE, int(length), layers=3, window=2, variant="paper")
    cls = torch.randn(2, SHAPE.hidden_size, requires_grad=True)
    embedding = torch.randn(SHAPE.vocab_size, SHAPE.hidden_size)
    ids = torch.randint(SHAPE.vocab_size, (2, int(length)))
    return lambda: model(cls, ids, embedding).sum().backward()


def resumed(lanes: float, folder: Path, most: int) -> Work:
    """Prepare the first micro-batch of each of `lanes` lanes mid-epoch, in shards that suffice for `most` lanes."""
    shards = folder / "longer"
    if not shards.exists():
        manifest = write_shards(folder, RESUMED_SHARDS * CHUNKS_PER_SHARD * CHUNK)
        lengthen(manifest, shards, -(-most // len(manifest.shards)))
    return partial(resume, Reading(Manifest.load(shards), int(lanes), RESUMED_WINDOW), int(lanes))


def doubled(first: float, times: int) -> tuple[float, ...]:
    """Return a size, followed by its `times` doublings."""
    return tuple(first * 2**i for i in range(times + 1))


ONE = ("batch.size=1", "batch.micro=1")
EIGHT = ("batch.size=8", "batch.micro=1")  # groups: not all are full
TWO = ("batch.size=2", "batch.micro=2")
ONE_LAYER = "trunk.num_hidden_layers=1"
SHORT = ("method.sequence_tokens=8", "method.sequences=32")
LONG = ("method.max_tokens=1024", "trunk.max_position_embeddings=1024")
CURVES = {
    "length": Curve(
        step_curve("mlm_small.yaml", ("method.max_tokens", "trunk.max_position_embeddings"), (VOCABULARY, *TWO)),
        doubled(128, 4),
        "tokens in a sequence of masked LM",
        "1 to 2",
        "the linear layers by 1, the trunk's attention by 2",
    ),
    "decoder": Curve(
        decoder, doubled(128, 4), "tokens in a sequence of SEED's decoder alone", "1", "no T x T matrix is made"
    ),
    "window": Curve(
        step_curve("seed_small.yaml", ("method.window",), (VOCABULARY, ONE_LAYER, *LONG, *ONE)),
        doubled(8, 5),
        "tokens in the window of SEED's decoder",
        "1",
        "a shifted product for each token of the window",
    ),
    "vocabulary": Curve(
        step_curve("seed_small.yaml", ("trunk.vocab_size",), (ONE_LAYER, "method.decoder_layers=1", "batch.size=16")),
        doubled(2048, 4),
        "tokens in SEED's vocabulary",
        "1",
        "the logits of every target",
    ),
    "special-tokens": Curve(
        step_curve("cross_thought_small.yaml", ("method.special_tokens",), (VOCABULARY, *SHORT, *ONE)),
        doubled(2, 5),
        "special tokens of a Cross-Thought sequence",
        "1",
        "each is a slot of the trunk, and one of the cross-sequence layer",
    ),
    "M": Curve(
        step_curve("cross_thought_small.yaml", ("method.sequences",), (VOCABULARY, *ONE)),
        doubled(8, 4),
        "sequences in a Cross-Thought example (M)",
        "1 to 2",
        "the trunk by 1, the attention between sequences by 2",
    ),
    "group": Curve(
        step_curve("poly_small.yaml", ("method.tokens",), (VOCABULARY, *EIGHT)),
        doubled(256, 4),
        "tokens in a Poly group",
        "1",
        "pairs do not attend to each other",
    ),
    "preparation": Curve(text_to_shards, doubled(0.125, 4), "MB of text", "1", "each document is read once"),
    "resume": Curve(partial(resumed, most=64), doubled(4, 4), "lanes", "1", "each verifies a shard and reads a window"),
}
