"""The order of a run: what every global micro-batch is, whatever the cluster.

Global micro-batch `a` comes wholly from lane `a mod V` of the source that trainer/mixing.py has for it. Ranks and
loader workers share out whole lanes, so the examples of an optimizer step are the same for any number of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.task import Batcher, MicroBatch
from trainer.keyed import keyed_rng
from trainer.lanes import START, Lanes, LaneStep, Position, Skip, Source
from trainer.mixing import Mix
from trainer.recipe import FinetuneRecipe, PretrainRecipe

Positions = list[list[Position]]  # of every lane of every source: [source][lane]


@dataclass(frozen=True)
class LaneBatch:
    """A micro-batch with the place it came from; `after` is recorded when the batch has been trained on."""

    micro_batch: MicroBatch
    index: int  # the global micro-batch number
    source: int
    lane: int
    before: Position
    after: Position
    skips: tuple[Skip, ...]  # shards found unreadable on the way to it


@dataclass(frozen=True)
class Order:
    """The lanes of every source, by the source's name, and which source each global micro-batch is made from."""

    sources: dict[str, Lanes]
    mix: Mix

    @property
    def names(self) -> list[str]:
        """The sources' names, by number."""
        return list(self.sources)

    @property
    def lanes(self) -> int:
        """How many lanes there are; every source has as many."""
        return next(iter(self.sources.values())).lanes

    def start(self) -> Positions:
        """Where every lane begins."""
        return [[START] * self.lanes for _ in self.sources]

    def skip(self, skips: Iterable[Skip]) -> None:
        """Pass over the shards that a run before this one had to pass over, repaired since or not."""
        for lanes in self.sources.values():
            lanes.skip(skips)

    def stream(self, positions: Sequence[Sequence[Position]], first: int, stride: int) -> Iterator[LaneBatch]:
        """Global micro-batches `first`, `first + stride`, ...: what one rank, or one loader worker of it, trains on.

        `positions` holds every lane's position before the micro-batch that this stream takes from it first.
        """
        readers: dict[tuple[int, int], Iterator[LaneStep]] = {}
        sources = list(self.sources.values())
        index = first
        while True:
            source, lane = self.mix.source(index), index % self.lanes
            if (source, lane) not in readers:
                readers[source, lane] = sources[source].micro_batches(lane, positions[source][lane])
            micro_batch, before, after, skips = next(readers[source, lane])
            yield LaneBatch(micro_batch, index, source, lane, before, after, skips)
            index += stride

    def origins(self, batch: LaneBatch) -> list[list[str]]:
        """The names of the documents that each example of a micro-batch was cut from."""
        lanes = list(self.sources.values())[batch.source]
        return lanes.origins(batch.lane, batch.before, lanes.size)


def make_order(
    recipe: PretrainRecipe | FinetuneRecipe, sources: Mapping[str, tuple[Source, float]], batcher: Batcher
) -> Order:
    """The order that a recipe asks for, of one source or of several with their weights."""
    lanes = {}
    for number, (name, (source, _)) in enumerate(sources.items()):
        mixed = int(keyed_rng(f"source {name}", recipe.seed).integers(2**62))  # so that no two are masked alike
        lanes[name] = Lanes(
            source,
            batcher,
            seed=mixed if name else recipe.seed,
            lanes=recipe.data.lanes,
            window=recipe.data.window,
            micro_batch=recipe.batch.micro,
            number=number,
            skip_bad=recipe.faults.on_bad_shard == "skip",
        )
    return Order(lanes, Mix([weight for _, weight in sources.values()], recipe.seed))
