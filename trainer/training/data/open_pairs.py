"""Open the labelled pairs of a fine-tuning run, check them, and put them into the order of the run.

Called once, when the job is built.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.interface import Batcher
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.trainer.training.data.check_groups import check_copies, check_groups
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.opened import Data, HeldOut
from deepsiam.trainer.training.data.order import WeightedSource, make_order
from deepsiam.trainer.training.data.teacher import TeacherVectors, open_teacher, texts_of
from deepsiam.trainer.training.recipe.data_keys import on_source, with_source_keys
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PairValidationConfig

EXAMPLES_OF_A_UNIT = 32  # dealt to a lane together; with fewer, dealing an epoch would be slower


def pair_data(recipe: FinetuneRecipe) -> Data:
    """Open the labelled groups of a fine-tuning run; raise InputError if they do not suit its method, or one another.

    A single collection is a mix of one source, which has no name.
    """
    configs = recipe.data.sources
    collections = {source.collection: Collection.open(source.collection) for source in configs.values()}
    first_collection, *other_collections = collections.values()
    tokenizer = first_collection.tokenizer
    for collection in other_collections:
        collection.require_tokenizer(tokenizer, first_collection.directory)
    teacher = open_teacher(recipe, tokenizer)
    groups, sources, held_out, remarks = dict[str, GroupSource](), dict[str, WeightedSource](), list[HeldOut](), []
    # every lane gets a whole window of units, so that examples of the same unit are shuffled with others in every epoch
    unit, least_units = EXAMPLES_OF_A_UNIT, recipe.data.lanes * recipe.data.window
    for (name, keys), method in zip(configs.items(), recipe.methods, strict=True):
        collection, section = collections[keys.collection], f"data.mix.{name}" if name else "data"
        groups[name] = opened = GroupSource(
            collection, keys.split, method.unit, keys.pairs, recipe.seed, section, unit=unit, least_units=least_units
        )
        with _naming(name):
            mined = recipe.refresh is not None and keys.refresh
            remarks += [with_source_keys(name, remark) for remark in check_groups(method, opened, mined)]
            if name and len(opened) < recipe.batch.size:
                raise InputError(
                    f"split {keys.split} has {len(opened):,} examples, fewer than a step's batch.size="
                    f"{recipe.batch.size:,}: lower that, or leave the source out"
                )
            weight = keys.weight if keys.weight is not None else len(opened) ** (1 / (recipe.data.mix_temperature or 1))
            sources[name] = WeightedSource(opened, _group_batcher(method, opened, teacher), weight)
    if recipe.validation:
        held_out, problems = _held_out(recipe, recipe.validation, groups, teacher)
        remarks += problems
    sha256 = {name: source.sha256 for name, source in groups.items()}
    return Data(make_order(recipe, sources), held_out, tokenizer, sha256, remarks, teacher)


def _held_out(
    recipe: FinetuneRecipe,
    validation: PairValidationConfig,
    trained: Mapping[str, GroupSource],
    teacher: TeacherVectors | None,
) -> tuple[list[HeldOut], list[str]]:
    """Open the split to validate on of every source, and return remarks.

    Sources of a mix that lack the split, or what their losses need in it, are left out, with a remark. Raise InputError
    if none is left.
    """
    held_out, remarks, problems, micro = list[HeldOut](), list[str](), list[str](), recipe.batch.micro
    for number, ((name, source), method) in enumerate(zip(trained.items(), recipe.methods, strict=True)):
        try:
            # a unit is one micro-batch; all negatives are documents of that micro-batch
            groups = GroupSource(
                *(source.collection, validation.split, method.unit, validation.pairs, recipe.seed, "validation"),
                unit=micro,
            )
            remarks += [with_source_keys(name, remark) for remark in check_groups(method, groups)]
            batcher = _group_batcher(method, groups, teacher)
        except InputError as error:
            problem = with_source_keys(name, str(error))
            problems.append(f"data.mix.{name} is not validated on: {problem}" if name else problem)
            continue
        held_out.append(HeldOut(groups, batcher, recipe.seed, window=1, micro_batch=micro, number=number, name=name))
    if not held_out:
        raise InputError(f"{problems[0]}; or set validation to null")
    return held_out, [*remarks, *problems]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Let errors name the source of a mix that caused them, and its keys."""
    try:
        yield
    except InputError as error:
        raise InputError(on_source(name, str(error))) from None


def _group_batcher(method: MatchingConfig, source: GroupSource, teacher: TeacherVectors | None) -> Batcher:
    collection = source.collection
    candidates = Candidates(collection.corpus, source.candidates, collection.tokenizer.unk)
    check_copies(method, source, candidates)
    with as_input_error("method"):
        batcher = method.batcher(collection.tokenizer, candidates)
    if not (teacher and method.learns_vectors):
        return batcher
    teacher.require_texts(texts_of(collection), collection.sha256, collection.directory)
    return TaughtBatcher(batcher, teacher)
