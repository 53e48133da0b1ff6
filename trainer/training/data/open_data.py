"""Open the data of a recipe (shards or labelled pairs), check them, and put them into the order of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.common.urls import is_remote
from data_prep.shards.manifest import Manifest
from data_prep.shards.remote_folder import Cache
from data_prep.tokenizers import tokenizer as tokenizers
from data_prep.tokenizers.check import require_same_tokenizer
from data_prep.tokenizers.tokenizer import Tokenizer
from models.batching.candidates import Candidates
from models.config import MatchingConfig
from models.interface import Batcher
from trainer.training.data.group_source import GroupSource
from trainer.training.data.held_out import HeldOut
from trainer.training.data.order import Order, make_order
from trainer.training.data.shard_source import ShardSource
from trainer.training.recipe.build import as_input_error, build_batcher
from trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe, ShardDataConfig

MOST_COPIES = 10_000  # no document has more copies than this
EXAMPLES_OF_A_UNIT = 32  # dealt to a lane together; with fewer, dealing an epoch would be slower


@dataclass(frozen=True)
class Data:
    """The order of the micro-batches, the held-out data, and their tokenizer."""

    order: Order
    held_out: HeldOut | None
    tokenizer: Tokenizer
    sha256: dict[str, str]  # of every source, by name
    remarks: Sequence[str] = ()  # what the user should know about the data, one line each


def resume_invariants(recipe: Recipe, data: Data) -> dict[str, Any]:
    """Return all settings except the schedule that a run's numbers depend on: they must not change on resume."""
    encoder = recipe.model_dump(mode="json", include={"trunk", "init_from", "bidirectional", "random_weights"})
    # the name comes first: only the first difference is reported
    method = recipe.method.model_dump(mode="json")
    return {
        "seed": recipe.seed,
        **encoder,
        **_refresh(recipe),
        "method": {"name": recipe.method.name, **method},
        "data": recipe.data.model_dump(mode="json", exclude={"workers", "cache", "cache_bytes"}),
        "batch.size": recipe.batch.size,
        **({"batch.micro": recipe.batch.micro} if recipe.method.compares_micro_batch else {}),
        "optimizer.name": recipe.optimizer.name,
        "optimizer.train": recipe.optimizer.model_dump(mode="json")["train"],
        "optimizer": recipe.optimizer.model_dump(mode="json", include={"betas", "eps", "weight_decay"}),
        "data sha256": data.sha256,
    }


def _refresh(recipe: Recipe) -> dict[str, Any]:
    """Return the refresh of a fine-tuning run, or that it has none: it cannot be added later, either."""
    if not isinstance(recipe, FinetuneRecipe):
        return {}
    return {"refresh": recipe.refresh.model_dump(mode="json") if recipe.refresh else None}


def shard_data(recipe: PretrainRecipe) -> Data:
    """Open the shards of a pre-training run; raise InputError if they were made with different tokenizers."""
    named = recipe.data.sources
    sources = {name: _open(source.shards, recipe.data) for name, source in named.items()}
    validation = _open(recipe.validation.shards, recipe.data) if recipe.validation else None
    manifests = [source.manifest for source in [*sources.values(), *([validation] if validation else [])]]
    tokenizer = _one_tokenizer(manifests)
    if recipe.method.needs_dialogues:
        _check_dialogues(manifests)
    batcher = build_batcher(recipe.method, tokenizer)
    order = make_order(recipe, {name: (source, named[name].weight) for name, source in sources.items()}, batcher)
    held_out = None
    if validation:
        held_out = HeldOut(validation, batcher, recipe.seed, recipe.data.window, recipe.batch.micro)
    return Data(order, held_out, tokenizer, {name: source.manifest.sha256 for name, source in sources.items()})


def _open(location: str, data: ShardDataConfig) -> ShardSource:
    if is_remote(location):
        return ShardSource(Cache(location, data.cache.expanduser(), data.cache_bytes))
    return ShardSource(Manifest.load(Path(location)))


def pair_data(recipe: FinetuneRecipe) -> Data:
    """Open the labelled groups of a fine-tuning run; raise InputError if they do not suit its method."""
    collection = Collection.open(recipe.data.collection)
    keys, micro = recipe.data, recipe.batch.micro
    # every lane gets a whole window of units, so that examples of the same unit are shuffled with others in every epoch
    unit, least, kind = EXAMPLES_OF_A_UNIT, keys.lanes * keys.window, recipe.method.unit
    source = GroupSource(collection, keys.split, kind, keys.pairs, recipe.seed, unit=unit, least_units=least)
    remarks = _check_groups(recipe.method, source, mined=recipe.refresh is not None)
    order = make_order(recipe, {"": (source, 1.0)}, _group_batcher(recipe, source))
    held_out = None
    if validation := recipe.validation:
        try:
            # a unit is one micro-batch; all negatives are documents of that micro-batch
            groups = GroupSource(
                collection, validation.split, kind, validation.pairs, recipe.seed, "validation", unit=micro
            )
            remarks += _check_groups(recipe.method, groups)
        except InputError as error:
            raise InputError(f"{error}; or set validation to null") from None
        held_out = HeldOut(groups, _group_batcher(recipe, groups), recipe.seed, window=1, micro_batch=micro)
    return Data(order, held_out, collection.tokenizer, {"": source.sha256}, remarks)


def _group_batcher(recipe: FinetuneRecipe, source: GroupSource) -> Batcher:
    collection, method = source.collection, recipe.method
    candidates = Candidates(collection.corpus, source.candidates, collection.tokenizer.unk)
    if 0 <= source.negatives - method.own_negatives < MOST_COPIES:
        _check_copies(method, source, candidates)
    with as_input_error("method"):
        return method.batcher(collection.tokenizer, candidates)


def _check_copies(method: MatchingConfig, source: GroupSource, candidates: Candidates) -> None:
    """Raise InputError where copies of a query's relevant documents leave too few negatives to draw."""
    texts, copies = np.unique(candidates.keys(candidates.pool), return_counts=True)
    number_of = dict(zip(texts.tolist(), copies.tolist(), strict=True))
    for query in np.unique(np.asarray(source.groups.queries)[source.numbers]).tolist():
        tokens, relevant = source.collection.queries.tokens(query), source.relevant.never_negative(query)
        excluded = np.unique(candidates.never_negative(tokens, relevant)).tolist()
        left = len(candidates.pool) - sum(number_of.get(text, 0) for text in excluded)
        if left < method.own_negatives:
            raise InputError(
                f"method.negatives_per_query + method.hard_negatives: {method.own_negatives}, but split {source.split} "
                f"has only {left} documents with another text than those relevant to query "
                f"{source.collection.queries.ids[query]}: set {left} or less"
            )


def _check_groups(method: MatchingConfig, source: GroupSource, mined: bool = False) -> list[str]:
    """Return remarks on a split's groups; raise InputError if they do not suit the method.

    `mined`: the groups need not have negatives, because negatives will be mined.
    """
    if method.negatives_per_query > source.negatives:
        raise InputError(
            f"method.negatives_per_query: {method.negatives_per_query}, but split {source.split} has only "
            f"{source.negatives} documents that are not relevant to one of its queries: set {source.negatives} or less"
        )
    if method.has_batch_negatives and not method.has_own_negatives and not source.negatives:
        raise InputError(
            f"method.negatives: all documents of split {source.split} are relevant to one of its queries, which is "
            "left without negatives: add other pairs"
        )
    remarks = _check_hard_negatives(method, source, mined) if method.hard_negatives else []
    if method.taught:
        source.check_teacher(" and ".join(method.taught))
    if method.candidates:
        remarks += _check_candidates(method.candidates.per_query, source)
    if getattr(method, "query", "") == "tokens":
        remarks += _check_queries(method, source)
    if isinstance(classes := getattr(method, "classes", None), int):
        source.check_classes(classes)
    else:
        source.check_relevance(" and ".join(method.losses))
    return remarks


def _check_queries(method: MatchingConfig, source: GroupSource) -> list[str]:
    """Return a remark if some queries have no tokens that count; raise InputError if no query has any."""
    queries, framing = source.collection.queries, method.query_framing(source.collection.tokenizer)
    numbers = np.unique(np.asarray(source.groups.queries)[source.numbers]).tolist()
    empty = [i for i in numbers if not len(framing.cut(queries.tokens(i)))]
    if len(empty) == len(numbers):
        raise InputError(f"method.query=tokens: the queries of split {source.split} are stop words alone: set encoder")
    if not empty:
        return []
    return [
        f"split {source.split}: {len(empty):,} of {len(numbers):,} queries are stop words alone, such as "
        f"{queries.ids[empty[0]]}: all documents score 0 for them"
    ]


def _check_hard_negatives(method: MatchingConfig, source: GroupSource, mined: bool) -> list[str]:
    """Return a remark if some groups have fewer negatives than requested, so that the rest are drawn at random.

    Raise InputError if no group has enough negatives, or too few other documents are left to draw from.
    """
    wanted, given = method.hard_negatives, list(source.given_negatives())
    fewest, most = (choose(given, key=itemgetter(1)) for choose in (min, max))
    too_few_others = wanted - fewest[1] + method.negatives_per_query > source.negatives
    none_has_enough = wanted > most[1] and not mined
    if none_has_enough or (wanted > fewest[1] and too_few_others):
        query, number = most if none_has_enough else fewest
        fewer = f"set {number} or less" if number else "mine some (trainer.mine)"
        raise InputError(
            f"method.hard_negatives: {wanted}, but split {source.split} gives query {query} only "
            f"{number}: {fewer}, or draw some at random (method.negatives_per_query)"
        )
    few = sum(number < wanted for _, number in given)
    if not few:
        return []
    return [
        f"split {source.split}: {few:,} of {len(given):,} groups give fewer than method.hard_negatives={wanted}: "
        "the others are drawn at random"
    ]


def _check_candidates(wanted: int, source: GroupSource) -> list[str]:
    """Return a remark if some groups have fewer candidates than are drawn; raise InputError if all have."""
    given = [1 + others for _, others in source.given_others()]
    if wanted > max(given):
        raise InputError(
            f"method.candidates.per_query: {wanted}, but split {source.split} gives no query more than {max(given)} "
            f"candidates: set {max(given)} or less"
        )
    few = sum(number < wanted for number in given)
    if not few:
        return []
    return [
        f"split {source.split}: {few:,} of {len(given):,} groups give fewer than method.candidates.per_query={wanted}: "
        "all of theirs are used"
    ]


def _check_dialogues(manifests: Sequence[Manifest]) -> None:
    """Raise InputError for shards whose manifest states that they are not dialogues."""
    for manifest in manifests:
        if manifest.source.get("dialogues") is False:
            raise InputError(
                f"method.pairs=utterances: the documents of {manifest.directory} are not dialogues: "
                "set method.pairs=sentences, or name shards of `data_prep reddit`"
            )


def _one_tokenizer(manifests: Sequence[Manifest]) -> Tokenizer:
    first, *others = manifests
    tokenizer = tokenizers.load(first.directory / "tokenizer.json")
    remedy = f"build the shards again with --tokenizer {tokenizer.path}"
    for other in others:
        require_same_tokenizer(tokenizer, first.directory, other.tokenizer["fingerprint"], other.directory, remedy)
    return tokenizer
