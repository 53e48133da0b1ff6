"""Score a query against cached candidates by Poly-encoders and a Siamese network (Humeau et al., 2020, table 5).

All have the same trunk, so that encoding a query costs the same. The Siamese network is the paper's Bi-encoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import machine
from benchmarks.common.made_up_pairs import bert
from benchmarks.common.side_by_side import Values, ratios, rounds, spread
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.dual_encoder import DualEncoder
from deepsiam.models.matching.poly_encoder import PolyEncoder, PolyEncoderConfig
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.models.vectors import Vectors, one_vector

BI = "bi"
WHOLE, SCORES = "encode and score", "score"
SHORTEST = 0.05  # the least seconds of a measurement


@dataclass(frozen=True)
class ScoringSizes:
    """A query's length, the models, and how many candidates there are."""

    layers: int
    hidden: int
    tokens: int  # of the query
    codes: tuple[int, ...]
    candidates: tuple[int, ...]


def measure(sizes: ScoringSizes, end: float) -> dict[str, Any]:
    """Measure every model on every number of candidates in turn until about `end`; return seconds and ratios to bi."""
    models, query = models_of(sizes), query_of(sizes)
    calls: dict[str, Callable[[], float]] = {}
    for number in sizes.candidates:
        torch.manual_seed(number)
        vectors = one_vector(torch.randn(number, sizes.hidden, device=machine.device()))
        for name, model in models.items():
            calls[key(number, WHOLE, name)] = partial(seconds_of, partial(best, model, query, vectors))
            encoded = encode(model, query)
            calls[key(number, SCORES, name)] = partial(seconds_of, partial(model.score, encoded, vectors))
    with torch.inference_mode():
        for call in calls.values():
            call()
        return in_numbers(sizes, rounds(calls, end))


def models_of(sizes: ScoringSizes) -> dict[str, DualEncoder]:
    """Return the Siamese network and a Poly-encoder for each number of codes, with one trunk, in evaluation mode."""
    torch.manual_seed(0)
    trunk = build_trunk(bert(sizes.layers, sizes.hidden, sizes.tokens))
    lengths = {"max_query_tokens": sizes.tokens, "towers": 1}
    models: dict[str, DualEncoder] = {BI: Siamese(trunk, SiameseConfig(name="siamese", **lengths))}
    for m in sizes.codes:
        models[f"poly {m}"] = PolyEncoder(trunk, PolyEncoderConfig(name="poly_encoder", m=m, **lengths))
    return {name: model.to(machine.device()).eval() for name, model in models.items()}


def query_of(sizes: ScoringSizes) -> tuple[Tensor, Tensor]:
    """Return the ids and the mask of a query, [1, tokens]."""
    ids = torch.arange(5, 5 + sizes.tokens, device=machine.device())[None]
    return ids, torch.ones_like(ids, dtype=torch.bool)


@torch.inference_mode()
def encode(model: DualEncoder, query: tuple[Tensor, Tensor]) -> Vectors:
    """Return the vectors of the query."""
    return model.embed_queries(*query)


def best(model: DualEncoder, query: tuple[Tensor, Tensor], candidates: Vectors) -> int:
    """Encode the query and return the number of its best candidate."""
    return int(model.score(encode(model, query), candidates).argmax())


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of a call, which is repeated until it is long enough to measure."""
    calls, seconds = 0, 0.0
    machine.synchronize()
    start = time.perf_counter()
    while not calls or seconds < SHORTEST:
        call()
        machine.synchronize()
        calls, seconds = calls + 1, time.perf_counter() - start
    return seconds / calls


def in_numbers(sizes: ScoringSizes, seconds: Values) -> dict[str, Any]:
    """Turn the seconds of each round into their spread, and each Poly-encoder's ratio to the Siamese network."""
    results: dict[str, Any] = {"rounds": len(next(iter(seconds.values()))), "seconds": {}, "ratios": {}}
    for number in sizes.candidates:
        for what in (WHOLE, SCORES):
            for name in [BI, *(f"poly {m}" for m in sizes.codes)]:
                values = seconds[key(number, what, name)]
                results["seconds"][key(number, what, name)] = spread(values)
                if name != BI:
                    results["ratios"][key(number, what, f"{name} / {BI}")] = ratios(
                        values, seconds[key(number, what, BI)]
                    )
    return results


def key(candidates: int, what: str, name: str) -> str:
    """Return the name of a measurement."""
    return f"{candidates:,} candidates, {what}: {name}"
