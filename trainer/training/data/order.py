"""The order of a run: the content of every global micro-batch, on any cluster.

The loader's workers iterate over it: it stands between the lanes of the sources and the micro-batches of a rank.

Global micro-batch `a` comes entirely from lane `a mod V` of the source that mixing.py draws for it. Ranks and loader
workers serve whole lanes, so the examples of an optimizer step are the same for any number of either.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.models.interface import Batcher, MicroBatch
from deepsiam.trainer.training.data.lanes import START, ItemSource, Lanes, LaneStep, Position, Skip
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.recipe.data_keys import on_source
from deepsiam.trainer.training.recipe.schema import Recipe

Positions = list[list[Position]]  # the position of every lane of every source: [source][lane]


@dataclass(frozen=True)
class LaneBatch:
    """A micro-batch and its origin; `end` is recorded once the batch has been trained on."""

    micro_batch: MicroBatch
    index: int  # the global micro-batch number
    source: int
    lane: int
    start: Position
    end: Position
    skips: tuple[Skip, ...]  # unreadable shards met before it


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
        """The number of lanes, the same for every source."""
        return next(iter(self.sources.values())).lanes

    def start(self) -> Positions:
        """The first position of every lane."""
        return [[START] * self.lanes for _ in self.sources]

    def check(self, positions: Positions, where: object) -> None:
        """Raise InputError, naming `where` they come from, unless every lane of every source has a position."""
        if [len(lanes) for lanes in positions] != [self.lanes] * len(self.sources):
            raise InputError(f"{where}: cursor.positions: not {len(self.sources)} sources of {self.lanes} lanes each")

    def skip(self, skips: Iterable[Skip]) -> None:
        """Skip the shards that the run skipped before it was resumed, even if they have been repaired since."""
        for lanes in self.sources.values():
            lanes.skip(skips)

    def stream(self, positions: Sequence[Sequence[Position]], first_index: int, stride: int) -> Iterator[LaneBatch]:
        """Yield the global micro-batches `first_index`, `first_index + stride`, ... of one rank or one of its workers.

        `positions` holds every lane's position before the first micro-batch that this stream takes from it.
        """
        readers: dict[tuple[int, int], Iterator[LaneStep]] = {}
        sources = list(self.sources.values())
        index = first_index
        while True:
            source, lane = self.mix.source(index), index % self.lanes  # both known without reading anything
            if (source, lane) not in readers:
                readers[source, lane] = sources[source].micro_batches(lane, positions[source][lane])
            micro_batch, start, end, skips = next(readers[source, lane])
            yield LaneBatch(micro_batch, index, source, lane, start, end, skips)
            index += stride  # it divides the number of lanes, so no other rank or worker reads from these

    def progress(self, micro_batches: int) -> dict[str, float]:
        """Return the examples that each source has given in the first micro-batches, and the epochs where known."""
        figures: dict[str, float] = {}
        for (name, lanes), count in zip(self.sources.items(), self.mix.drawn(micro_batches), strict=True):
            figures[f"examples/{name}"] = count * lanes.size
            if isinstance(lanes.source, Sized):
                figures[f"epochs/{name}"] = count * lanes.size / len(lanes.source)
        return figures

    def origins(self, batch: LaneBatch) -> list[list[str]]:
        """Return the names of the documents that each example of a micro-batch was cut from."""
        lanes = list(self.sources.values())[batch.source]
        return lanes.origins(batch.lane, batch.start, lanes.size)


class WeightedSource(NamedTuple):
    """Items, how they become micro-batches, and how often they do, relative to other sources."""

    items: ItemSource
    batcher: Batcher
    weight: float = 1.0


def make_order(recipe: Recipe, sources: Mapping[str, WeightedSource]) -> Order:
    """Build the order that a recipe asks for, from one source or from several weighted sources."""
    lanes = {}
    for number, (name, source) in enumerate(sources.items()):
        # sources must not share their masks; a source that is alone has no name
        seed = int(keyed_rng(f"source {name}", recipe.seed).integers(2**62)) if name else recipe.seed
        try:
            lanes[name] = Lanes(
                source.items,
                source.batcher,
                seed=seed,
                lanes=recipe.data.lanes,
                window=recipe.data.window,
                micro_batch=recipe.batch.micro,
                number=number,
                skip_bad=recipe.faults.on_bad_shard == "skip",
            )
        except InputError as error:
            raise InputError(on_source(name, str(error))) from None
    turn = recipe.batch.micro_batches if recipe.data.one_source_per == "step" else 1
    return Order(lanes, Mix([source.weight for source in sources.values()], recipe.seed, turn))


def dropout_seed(seed: int, micro_batch: int) -> int:
    """Return torch's seed for a global micro-batch, so that dropout, too, is the same on any cluster.

    A function of the run's seed and the micro-batch's number, not of the rank. GradCache uses it twice, to repeat the
    dropout of its first pass.
    """
    return int(keyed_rng("dropout", seed, micro_batch).integers(2**63))
