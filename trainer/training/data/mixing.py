"""Draw the source of every micro-batch: a random order that follows the weights at every micro-batch.

The chairman assignment problem (Tijdeman, 1980): of the first t micro-batches, a source provides floor(share * t) or
ceil(share * t). With a fixed order of this kind, a lane would never get certain sources if the order's period shares a
divisor with the number of lanes. So every block has its own random order, in which the probability of a source equals
its share at every place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from data_prep.common.errors import InputError
from data_prep.common.rng import keyed_rng

LONGEST = 1000  # micro-batches in a block: after each block every source has provided exactly its share

Graph = dict[Hashable, dict[Hashable, int]]  # node: {neighbour: amount}; places are numbers, turns (source, number)


class Mix:
    """The source of every global micro-batch, a pure function of the seed and its number.

    Weights may have any scale: 0.7 and 0.3, or 7 and 3. Raise InputError for weights whose block would be longer than
    `LONGEST` micro-batches: drawing it would take too long.
    """

    def __init__(self, weights: Sequence[float], seed: int):
        exact = [Fraction(str(weight)) for weight in weights]
        whole = math.lcm(*(weight.denominator for weight in exact))
        counts = [int(weight * whole) for weight in exact]
        divisor = math.gcd(*counts)
        self.shares = [count // divisor for count in counts]  # micro-batches of each source in a block
        self.block = sum(self.shares)
        if self.block > LONGEST:
            raise InputError(
                f"data.mix: the weights {', '.join(map(str, weights))} need {self.block:,} micro-batches "
                f"to be met exactly, at most {LONGEST:,} are allowed: write them with fewer digits"
            )
        self.seed = seed
        self._order = lru_cache(maxsize=16)(self._draw)

    def source(self, micro_batch: int) -> int:
        """Return the number of the source of a global micro-batch."""
        block, place = divmod(micro_batch, self.block)
        return self._order(block)[place]

    def _draw(self, block: int) -> list[int]:
        """Draw the sources of a block by dependent rounding (Gandhi et al., 2006) of overlaps of turns with places."""
        rng = keyed_rng("mix", self.seed, block)
        graph = self._overlaps()
        for place in range(self.block):
            while len(graph[place]) > 1:
                _round(graph, _cycle(graph, place), rng)
        return [turn[0] for place in range(self.block) for turn in graph[place]]  # type: ignore[index]

    def _overlaps(self) -> Graph:
        """Return how much of every place each turn of a source could fill, in units of 1 / `block`.

        Places are the unit intervals of time; the k-th turn of a source lasts from k / share to (k + 1) / share.
        A turn may get any place that it overlaps, so the source is never a whole micro-batch away from its share.
        """
        graph: Graph = {place: {} for place in range(self.block)}
        for source in sorted(range(len(self.shares)), key=self.shares.__getitem__):  # long turns first: short cycles
            share = self.shares[source]
            for place in range(self.block):
                start, end = share * place, share * (place + 1)
                for number in range(start // self.block, -(-end // self.block)):
                    first, last = number * self.block, (number + 1) * self.block
                    amount = min(end, last) - max(start, first)
                    graph[place][source, number] = amount
                    graph.setdefault((source, number), {})[place] = amount
        return graph


def _cycle(graph: Graph, start: Hashable) -> list[Hashable]:
    """Find a cycle of unrounded edges; a node has none or at least two, because its amounts sum to a whole."""
    path, at = [start], {start: 0}
    while True:
        before = path[-2] if len(path) > 1 else None
        node = next(neighbour for neighbour in graph[path[-1]] if neighbour != before)
        if node in at:
            return path[at[node] :]
        at[node] = len(path)
        path.append(node)


def _round(graph: Graph, cycle: list[Hashable], rng: np.random.Generator) -> None:
    """Move amounts around a cycle until one edge is empty, keeping every edge's expectation; drop empty edges."""
    edges = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    up, down = (min(graph[a][b] for a, b in edges[odd::2]) for odd in (1, 0))
    change = up if rng.integers(up + down) < down else -down
    for number, (a, b) in enumerate(edges):
        amount = graph[a][b] + (change if number % 2 == 0 else -change)
        for one, other in ((a, b), (b, a)):
            if amount:
                graph[one][other] = amount
            else:
                del graph[one][other]
