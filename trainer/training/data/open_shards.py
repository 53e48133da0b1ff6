"""Open the shards of a pre-training run, check them, and put them into the order of the run.

Called once, when the job is built.
"""

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.urls import is_remote
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.training.data.opened import Data, HeldOut
from deepsiam.trainer.training.data.order import WeightedSource, make_order
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.recipe.build import build_batcher
from deepsiam.trainer.training.recipe.data_keys import ShardDataConfig
from deepsiam.trainer.training.recipe.schema import PretrainRecipe


def shard_data(recipe: PretrainRecipe) -> Data:
    """Open the shards of a pre-training run; raise InputError if they were made with different tokenizers."""
    configs = recipe.data.sources
    sources = {name: _open(source.shards, recipe.data) for name, source in configs.items()}
    validation = _open(recipe.validation.shards, recipe.data) if recipe.validation else None
    manifests = [source.manifest for source in [*sources.values(), *([validation] if validation else [])]]
    tokenizer = tokenizers.load(manifests[0].directory / "tokenizer.json")
    _check_manifests(recipe, manifests, tokenizer)
    batcher = build_batcher(recipe.method, tokenizer)
    teacher = None
    if recipe.data.teacher or recipe.method.learns_vectors:
        from deepsiam.trainer.training.data.taught_shards import with_teacher  # few runs need it

        every_source = [*sources.values(), *([validation] if validation else [])]
        batcher, teacher = with_teacher(recipe, tokenizer, batcher, every_source)
    weighted = {name: WeightedSource(source, batcher, configs[name].weight) for name, source in sources.items()}
    order, held_out = make_order(recipe, weighted), list[HeldOut]()
    if validation:
        held_out.append(HeldOut(validation, batcher, recipe.seed, recipe.data.window, recipe.batch.micro))
    sha256 = {name: source.manifest.sha256 for name, source in sources.items()}
    return Data(order, held_out, tokenizer, sha256, teacher=teacher)


def _open(location: str, data: ShardDataConfig) -> ShardSource:
    if is_remote(location):
        from deepsiam.data_prep.shards.remote_folder import Cache  # few runs need it

        return ShardSource(Cache(location, data.cache.expanduser(), data.cache_bytes))
    return ShardSource(Manifest.load(Path(location)))


def _check_manifests(recipe: PretrainRecipe, manifests: Sequence[Manifest], tokenizer: Tokenizer) -> None:
    """Raise InputError if shards have another tokenizer than the first, or are not what the method needs."""
    build_again = f"build the shards again with --tokenizer {tokenizer.path}"
    for manifest in manifests[1:]:
        names = manifests[0].directory, manifest.tokenizer["fingerprint"], manifest.directory
        require_same_tokenizer(tokenizer, *names, build_again)
    for manifest in manifests:
        if recipe.method.needs_dialogues and manifest.source.get("dialogues") is False:
            raise InputError(
                f"method.pairs=utterances: the documents of {manifest.directory} are not dialogues: "
                "set method.pairs=sentences, or name shards of `data_prep reddit`"
            )
        if recipe.method.needs_pairs and manifest.source.get("pairs") is not True:
            raise InputError(
                f"method.name=pairs: the documents of {manifest.directory} are not pairs of a query and a document: "
                "name shards of `data_prep pairs`"
            )
