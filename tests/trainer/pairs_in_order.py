"""The texts that a fine-tuning on pairs reads, for other ways to train on the same pairs."""

from collections.abc import Iterator
from itertools import islice

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe

Pairs = list[tuple[str, str]]  # texts of queries and of their documents


def pairs_in_order(recipe: FinetuneRecipe) -> Iterator[Pairs]:
    """Yield the texts of the queries and relevant documents of every optimizer step, in the order of a run."""
    collection, order = Collection.open(recipe.data.collection), pair_data(recipe).order
    (lanes,) = order.sources.values()
    source = lanes.source
    assert isinstance(source, GroupSource)
    # the order names examples for messages; a group's number and its document's tell them apart exactly
    source.name = lambda shard, chunk, item: source.origin(shard * source.unit + item)  # type: ignore[method-assign]
    stream = order.stream(order.start(), 0, 1)
    while batches := list(islice(stream, recipe.batch.micro_batches)):
        pairs: list[tuple[int, int]] = [
            pair for batch in batches for origins in order.origins(batch) for pair in origins
        ]
        yield [
            (collection.queries.text(int(source.groups.queries[group])), collection.corpus.text(document))
            for group, document in pairs
        ]
