"""Draw the source of every micro-batch: a random order that follows the weights at every micro-batch.

The order of data asks it for each micro-batch; a function of the seed and the number, it needs no state.

The chairman assignment problem (Tijdeman, 1980): of the first t micro-batches, a source provides floor(share * t) or
ceil(share * t). With a fixed order of this kind, a lane would never get certain sources if the order's period shares a
divisor with the number of lanes. So every block has its own random order, in which the probability of a source equals
its share at every place.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng

LONGEST_BLOCK = 1000  # turns in a block: after each block every source has provided exactly its share

# of every node, {neighbour: [amount]}, where two neighbours have the same list; nodes are places, then turns
Graph = list[dict[int, list[int]]]


class Mix:
    """The source of every global micro-batch, a pure function of the seed and its number.

    A source provides the `turn` consecutive micro-batches of its turn. Weights may have any scale: 0.7 and 0.3, or 7
    and 3. Those that are not met exactly within `LONGEST_BLOCK` turns, such as the sizes of the sources, are rounded to
    whole turns of so many. Raise InputError where this leaves a source none.
    """

    def __init__(self, weights: Sequence[float], seed: int, turn: int = 1):
        self.shares = _whole_shares(weights)  # turns of each source in a block
        self.block = sum(self.shares)
        self.seed, self.turn = seed, turn
        self._order = lru_cache(maxsize=16)(self._draw)  # blocks are asked for in order, each many times

    def source(self, micro_batch: int) -> int:
        """Return the number of the source of a global micro-batch."""
        block, place = divmod(micro_batch // self.turn, self.block)
        return self._order(block)[place]

    def drawn(self, micro_batches: int) -> list[int]:
        """Return how many of the first global micro-batches each source provides."""
        turns, remainder = divmod(micro_batches, self.turn)
        blocks, places = divmod(turns, self.block)
        order = self._order(blocks)  # of the block that has begun
        counts = [(share * blocks + order[:places].count(i)) * self.turn for i, share in enumerate(self.shares)]
        counts[order[places]] += remainder
        return counts

    def _draw(self, block: int) -> list[int]:
        """Draw the sources of a block by dependent rounding (Gandhi et al., 2006) of overlaps of turns with places."""
        rng = keyed_rng("mix", self.seed, block)
        graph = self._overlaps()
        for place in range(self.block):
            _settle(graph, place, rng)
        sources = [source for source, share in enumerate(self.shares) for _ in range(share)]
        return [sources[turn - self.block] for place in range(self.block) for turn in graph[place]]

    def _overlaps(self) -> Graph:
        """Return how much of every place each turn of a source could fill, in units of 1 / `block`.

        Places are the unit intervals of time; the k-th turn of a source lasts from k / share to (k + 1) / share.
        A turn may get any place that it overlaps, so the source is never a whole micro-batch away from its share.
        """
        graph: Graph = [{} for _ in range(2 * self.block)]
        for source in sorted(range(len(self.shares)), key=self.shares.__getitem__):  # long turns first: short cycles
            share, first_turn = self.shares[source], self.block + sum(self.shares[:source])
            for place in range(self.block):
                start, end = share * place, share * (place + 1)
                for number in range(start // self.block, -(-end // self.block)):
                    amount = [min(end, (number + 1) * self.block) - max(start, number * self.block)]
                    graph[place][first_turn + number] = graph[first_turn + number][place] = amount
        return graph


def _whole_shares(weights: Sequence[float]) -> list[int]:
    """Return the smallest whole numbers in the ratio of the weights, or ones near it with the sum `LONGEST_BLOCK`."""
    exact = [Fraction(str(weight)) for weight in weights]  # of "0.1" a tenth, not the float near it
    denominator = math.lcm(*(weight.denominator for weight in exact))
    counts = [int(weight * denominator) for weight in exact]
    divisor = math.gcd(*counts)
    if sum(counts) // divisor <= LONGEST_BLOCK:
        return [count // divisor for count in counts]
    quotas = [count * LONGEST_BLOCK / Fraction(sum(counts)) for count in counts]
    shares = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: shares[i] - quotas[i])  # the largest first
    for i in by_remainder[: LONGEST_BLOCK - sum(shares)]:
        shares[i] += 1
    if 0 in shares:
        weight = weights[shares.index(0)]
        raise InputError(
            f"data.mix: the weight {weight:g} is too small a part of the sum of all, {sum(weights):g}: raise it, "
            "or the temperature that it comes from, or leave its source out"
        )
    return shares


def _settle(graph: Graph, place: int, rng: np.random.Generator) -> None:
    """Round the amounts of cycles, and drop the empty edges, until one turn has the place.

    A cycle is where the path from the place along first edges comes back to itself: a node has no unrounded edge or at
    least two, because its amounts sum to a whole. The path then goes on from its first edge that was dropped.
    """
    path, at, amounts = [place], {place: 0}, list[list[int]]()
    while len(graph[place]) > 1:
        previous_node = path[-2] if len(path) > 1 else None
        for node, amount in graph[path[-1]].items():
            if node != previous_node:
                amounts.append(amount)
                break
        if node not in at:
            at[node] = len(path)
            path.append(node)
            continue
        _round(amounts[at[node] :], rng)
        empty_edges = [number for number in range(at[node], len(path)) if not amounts[number][0]]
        for number in empty_edges:
            a, b = path[number], path[number + 1] if number + 1 < len(path) else node
            del graph[a][b], graph[b][a]
        for dropped_node in path[empty_edges[0] + 1 :]:
            del at[dropped_node]
        del path[empty_edges[0] + 1 :], amounts[empty_edges[0] :]


def _round(cycle: list[list[int]], rng: np.random.Generator) -> None:
    """Move amounts around a cycle until one is zero, keeping the expectation of every one."""
    (up,), (down,) = min(cycle[1::2]), min(cycle[::2])
    # up * down / (up + down) is the expected gain and loss alike: nothing changes on average
    change = up if rng.integers(up + down) < down else -down
    for amount in cycle[::2]:
        amount[0] += change
    for amount in cycle[1::2]:
        amount[0] -= change
