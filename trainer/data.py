"""What a recipe trains on: its shards or labelled pairs, opened, checked, and put into the order of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep import tokenizer as tokenizers
from data_prep.cache import Cache
from data_prep.collection import Collection
from data_prep.errors import InputError
from data_prep.remote import is_remote
from data_prep.shards import Manifest
from data_prep.tokenizer import Tokenizer
from models.siamese import SiameseBatcher
from trainer.method_keys import Poly
from trainer.methods import pretrain_batcher, vocabulary_of
from trainer.order import Order, make_order
from trainer.recipe import FinetuneRecipe, PretrainRecipe, ShardData
from trainer.sources import PairSource, ShardSource
from trainer.trained import Trained
from trainer.validation import Validation


@dataclass(frozen=True)
class Data:
    """The order of the micro-batches, the held-out data, and what they were made with."""

    order: Order
    validation: Validation | None
    tokenizer: Tokenizer
    sha256: dict[str, str]  # of every source, by name


def fixed(recipe: PretrainRecipe | FinetuneRecipe, data: Data) -> dict[str, Any]:
    """What the numbers of a run depend on, but for its schedule: a run that goes on must agree in it."""
    start = recipe.model_dump(mode="json", include={"trunk", "init_from", "random_weights"})
    # the name first, as the first difference is what is told; checkpointed activations are the same, computed again
    method = recipe.method.model_dump(mode="json", exclude={"activation_checkpointing"})
    return {
        "seed": recipe.seed,
        **start,
        "method": {"name": recipe.method.name, **method},
        "data": recipe.data.model_dump(mode="json", exclude={"workers", "cache", "cache_bytes"}),
        "batch.size": recipe.batch.size,
        "batch.micro": recipe.batch.micro,
        "optimizer": recipe.optimizer.model_dump(mode="json", include={"betas", "eps", "weight_decay"}),
        "data sha256": data.sha256,
    }


def shard_data(recipe: PretrainRecipe) -> Data:
    """The shards of a pre-training; raises InputError where they were made with different tokenizers."""
    named = recipe.data.sources
    sources = {name: _open(source.shards, recipe.data) for name, source in named.items()}
    held_out = [_open(recipe.validation.shards, recipe.data)] if recipe.validation else []
    manifests = [source.manifest for source in [*sources.values(), *held_out]]
    tokenizer = _one_tokenizer(manifests)
    if isinstance(recipe.method, Poly) and recipe.method.pairs == "utterances":
        _check_dialogues(manifests)
    batcher = pretrain_batcher(recipe.method, tokenizer)
    order = make_order(recipe, {name: (source, named[name].weight) for name, source in sources.items()}, batcher)
    validation = None
    if recipe.validation:
        every = recipe.validation.every
        validation = Validation(held_out[0], batcher, recipe.seed, recipe.data.window, recipe.batch.micro, every)
    return Data(order, validation, tokenizer, {name: source.manifest.sha256 for name, source in sources.items()})


def _open(location: str, data: ShardData) -> ShardSource:
    if is_remote(location):
        return ShardSource(Cache(location, data.cache.expanduser(), data.cache_bytes))
    return ShardSource(Manifest.load(Path(location)))


def pair_data(recipe: FinetuneRecipe, start: Trained) -> Data:
    """The labelled pairs of a fine-tuning; raises InputError where they were tokenised for another start."""
    collection = Collection.open(recipe.data.collection)
    if collection.tokenizer.fingerprint != start.tokenizer.fingerprint:
        raise InputError(
            f"data.collection: {recipe.data.collection} was tokenised with another tokenizer than {recipe.init_from}: "
            f"run python -m data_prep collection {recipe.data.collection} --tokenizer {start.tokenizer.path}"
        )
    source = PairSource(collection, recipe.data.split, recipe.data.pairs, recipe.seed, "data")
    order = make_order(recipe, {"": (source, 1.0)}, _pair_batcher(recipe, collection, source, start))
    validation = None
    if recipe.validation:
        held_out = PairSource(collection, recipe.validation.split, recipe.validation.pairs, recipe.seed, "validation")
        validation = Validation(
            held_out,
            _pair_batcher(recipe, collection, held_out, start),
            recipe.seed,
            recipe.batch.micro,  # a unit of as many pairs is a micro-batch, whose documents are all the negatives
            recipe.batch.micro,
            recipe.validation.every,
        )
    return Data(order, validation, start.tokenizer, {"": source.sha256})


def _pair_batcher(recipe: FinetuneRecipe, collection: Collection, source: PairSource, start: Trained) -> SiameseBatcher:
    method = recipe.method
    if method.negatives_per_query > source.negatives:
        raise InputError(
            f"method.negatives_per_query: {method.negatives_per_query}, but split {source.split} has only "
            f"{source.negatives} documents that are not relevant to one of its queries: set so many or fewer"
        )
    return SiameseBatcher(
        vocabulary_of(start.tokenizer),
        collection.corpus,
        source.candidates,
        max_query_tokens=method.max_query_tokens,
        max_document_tokens=method.max_document_tokens,
        negatives_per_query=method.negatives_per_query,
        loss=method.loss,
    )


def _check_dialogues(manifests: Sequence[Manifest]) -> None:
    """Raises InputError where shards were made of something else; those that do not say of what may be dialogues."""
    from data_prep.sources import SOURCES  # with all that reads raw text, which no other training needs

    for manifest in manifests:
        command = manifest.source.get("command")
        if command is not None and not (command in SOURCES and SOURCES[command].dialogues):
            raise InputError(
                f"method.pairs=utterances: {manifest.directory} is of `data_prep {command}`, which has no dialogues: "
                "set method.pairs=sentences, or name shards of `data_prep reddit`"
            )


def _one_tokenizer(manifests: Sequence[Manifest]) -> Tokenizer:
    first, *others = (tokenizers.load(manifest.directory / "tokenizer.json") for manifest in manifests)
    for other in others:
        if other.fingerprint != first.fingerprint:
            raise InputError(
                f"{other.path}: its shards were made with another tokenizer than those of {first.path}: "
                "build them again with --tokenizer, from one of the two"
            )
    return first
