"""The texts that a fine-tuning on pairs reads, for other ways to train on the same pairs."""

from collections.abc import Iterator
from itertools import islice

from data_prep.collections.collection import Collection
from trainer.training.data.open_data import pair_data
from trainer.training.recipe.schema import FinetuneRecipe

Pairs = list[tuple[str, str]]  # texts of queries and of their documents


def pairs_in_order(recipe: FinetuneRecipe) -> Iterator[Pairs]:
    """Yield the texts of the queries and relevant documents of every optimizer step, in the order of a run."""
    collection, order = Collection.open(recipe.data.collection), pair_data(recipe).order
    stream = order.stream(order.start(), 0, 1)
    while batches := list(islice(stream, recipe.batch.micro_batches)):
        names = [name for batch in batches for origins in order.origins(batch) for name in origins]
        ids = [name.removeprefix("query ").split(", document ") for name in names]
        queries = collection.queries.ids.find([query for query, _ in ids]).tolist()
        documents = collection.corpus.ids.find([document for _, document in ids]).tolist()
        pairs = zip(queries, documents, strict=True)
        yield [(collection.queries.text(query), collection.corpus.text(document)) for query, document in pairs]
