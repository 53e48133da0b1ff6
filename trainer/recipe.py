"""A run, described: YAML recipes that extend one another, dotted overrides, and errors that name the key."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from data_prep.errors import InputError
from trainer.method_keys import PretrainMethod, ProbeKeys, Section, Siamese
from trainer.schedule import Schedule, learning_rate


class Batch(Section):
    """How many examples make an optimizer step, and how many of them a rank holds at once."""

    size: PositiveInt
    micro: PositiveInt

    @model_validator(mode="after")
    def _divides(self) -> Batch:
        if self.size % self.micro:
            raise ValueError(f"batch.micro={self.micro} does not divide batch.size={self.size}")
        return self

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one optimizer step over all ranks."""
        return self.size // self.micro


class Optimizer(Section):
    """AdamW with linear warm-up, then a schedule's decay (trainer/schedule.py); weights of rank 1 never decay."""

    lr: PositiveFloat
    betas: tuple[float, float] = (0.9, 0.999)
    eps: PositiveFloat = 1e-6
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Schedule = "linear"  # to zero at the run's last step; inverse_sqrt never gets there
    clip: float = Field(1.0, ge=0)  # global gradient norm; 0 clips nothing

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0, of so many."""
        return learning_rate(step, peak=self.lr, warmup_steps=self.warmup_steps, steps=steps, schedule=self.schedule)


class Checkpoint(Section):
    """When to save, and what to keep: the newest ones, and for good those of every so many steps."""

    every: PositiveInt = 1000
    keep: int = Field(2, ge=2)  # one could be the damaged one
    keep_every: PositiveInt | None = None


class Faults(Section):
    """What to do when something goes wrong under way; see docs/operations.md."""

    on_bad_shard: Literal["stop", "skip"] = "stop"
    most_bad_shards: int = Field(10, ge=0)  # more than so many stop a run that skips them
    on_nan: Literal["stop", "skip"] = "stop"  # skip: back to the last checkpoint, and on after the data of the steps
    hang_seconds: PositiveFloat = 1800.0  # without a step, a save or a validation batch


class Lanes(Section):
    """The deterministic order of data (see trainer/lanes.py); none of these may change when a run is resumed."""

    lanes: PositiveInt = 64
    window: PositiveInt = 16  # chunks that are shuffled together
    workers: int = Field(0, ge=0)  # loader processes a rank; may change at any time


class MixedShards(Section):
    """One source of a mix: its shards, and its weight against the other sources'."""

    shards: str
    weight: PositiveFloat


class ShardData(Lanes):
    """Shards of token documents, as data_prep writes them: of one source, or of several by name and weight.

    They lie in a folder, or at an http(s), s3 or file URL; what is remote is read through a cache on every host.
    """

    shards: str | None = None
    mix: dict[str, MixedShards] | None = None
    cache: Path = Path("~/.cache/deepsiam/shards")
    cache_bytes: PositiveInt = 100_000_000_000

    @model_validator(mode="after")
    def _one_or_a_mix(self) -> ShardData:
        if (self.shards is None) == (not self.mix):
            raise ValueError("data: name either data.shards or, for several sources, data.mix")
        return self

    @property
    def sources(self) -> dict[str, MixedShards]:
        """Every source by name; the one of `shards` has none."""
        if self.shards is not None:
            return {"": MixedShards(shards=self.shards, weight=1.0)}
        return self.mix or {}


class PairData(Lanes):
    """Labelled (query, relevant document) pairs of a collection."""

    collection: Path
    split: str = "train"
    pairs: PositiveInt | None = None  # the first so many of an order that hangs on the seed alone; null takes all


class ShardValidation(Section):
    """Held-out shards, and after how many steps the losses on all of them are taken."""

    shards: str
    every: PositiveInt


class PairValidation(Section):
    """Held-out pairs of the collection, and after how many steps the loss on all of them is taken."""

    split: str
    pairs: PositiveInt | None = None
    every: PositiveInt


class Recipe(Section):
    """What every run has."""

    run: Path  # the folder of this run: checkpoints, TensorBoard events, the recipe as it ran
    seed: int = Field(1, ge=0)
    steps: PositiveInt  # optimizer steps
    batch: Batch
    optimizer: Optimizer
    deepspeed: str = "auto"  # a JSON file of ds_configs/, or auto: the fastest half precision of this machine
    checkpoint: Checkpoint = Checkpoint()
    faults: Faults = Faults()
    log_every: PositiveInt = 20


class PretrainRecipe(Recipe):
    """A pre-training run."""

    data: ShardData
    validation: ShardValidation | None = None
    probe: ProbeKeys | None = None
    trunk: dict[str, Any] | None = None  # keys of the Hugging Face configuration named by trunk.model_type
    init_from: Path | None = None  # or an encoder to start from: a run or checkpoint, an export, a Hugging Face folder
    method: Annotated[PretrainMethod, Field(discriminator="name")]

    @model_validator(mode="after")
    def _one_trunk(self) -> PretrainRecipe:
        if (self.trunk is None) == (self.init_from is None):
            raise ValueError("trunk: describe a new encoder there, or name one in init_from, and not both")
        if getattr(self.method, "freeze_encoder", False) and self.init_from is None:
            raise ValueError("method.freeze_encoder: only a trained encoder is worth freezing: name it in init_from")
        return self


class FinetuneRecipe(Recipe):
    """A fine-tuning run; the trunk comes from a pre-training run."""

    data: PairData
    validation: PairValidation | None = None
    init_from: Path  # a run folder (its newest checkpoint) or one checkpoint folder
    random_weights: bool = False  # the same trunk with weights drawn anew: what pre-training is judged against
    method: Siamese


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class _Loader(yaml.SafeLoader):
    """YAML whose floats are the ones people write: 1e-4 too, which YAML 1.1 takes for a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$|^[-+]?(\d+\.\d*|\.\d+)$|^[-+]?\.inf$|^\.nan$"),
    list("-+0123456789."),
)


def load(kind: type[AnyRecipe], path: Path, overrides: Sequence[str] = ()) -> AnyRecipe:
    """Read a recipe file, what it extends, and `key=value` overrides; raises InputError naming the key."""
    return build(kind, read(path, overrides), str(path))


def read(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The plain values of a recipe file, of what it extends, and of overrides; InputError where it cannot be read."""
    values = _read(path, ())
    for override in overrides:
        _override(values, override)
    return values


def build(kind: type[AnyRecipe], values: Mapping[str, Any], where: str) -> AnyRecipe:
    """A typed recipe from plain values; `where` is named in the errors."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(dict.fromkeys(_explain(kind, problem) for problem in error.errors()))
        raise InputError(f"{where}: {problems}") from None


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise InputError(f"{path}: extends itself by way of {' -> '.join(str(p.name) for p in seen)}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a SafeLoader: builds plain values only
    except OSError as error:
        raise InputError(f"{path}: no such recipe can be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: a recipe is a mapping of keys to values")
    base = values.pop("extends", None)
    if base is None:
        return values
    return _merge(_read(path.parent / str(base), (*seen, path.resolve())), values)


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings merged key by key, save one of another `name`, which replaces; so all else."""
    merged = dict(base)
    for key, value in over.items():
        under = merged.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(under, dict)
            and value.get("name", under.get("name")) == under.get("name")
        ):
            merged[key] = _merge(under, value)
        else:
            merged[key] = value
    return merged


def _override(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(f"{override!r}: an override is written key=value, as optimizer.lr=2e-4")
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise InputError(f"{override!r}: {text!r} is no YAML value") from None
    *parents, leaf = key.split(".")
    section = values
    for depth, parent in enumerate(parents):
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            raise InputError(f"{override!r}: {'.'.join(parents[: depth + 1])} is a single value and has no keys")
    section[leaf] = value


def _explain(kind: type[BaseModel], problem: Any) -> str:
    """One pydantic problem as `path: what is wrong`, with the nearest valid name for an unknown key."""
    known = [_named(path, problem["loc"]) for path in _paths(kind)]
    unknown_key = problem["type"] == "extra_forbidden"
    path = ""
    for depth, part in enumerate(problem["loc"], start=1):
        longer = f"{path}.{part}" if path else str(part)
        # pydantic also names the member of a union that it tried; that is no key
        if longer in known or (unknown_key and depth == len(problem["loc"])):
            path = longer
    if unknown_key:
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
        return f"{path}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
    if problem["type"] == "missing":
        return f"{'.'.join(map(str, problem['loc']))}: missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    return f"{path}: {message[0].lower()}{message[1:]}, not {problem['input']!r}"


def _named(path: str, loc: Sequence[int | str]) -> str:
    """A path whose `*` is what the user has there."""
    parts = path.split(".")
    return ".".join(str(loc[i]) if part == "*" and i < len(loc) else part for i, part in enumerate(parts))


def _paths(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key that a recipe of this kind may have; `*` stands for a name that the user chooses."""
    found = []
    for name, field in kind.model_fields.items():
        found.append(prefix + name)
        for section in _sections(field.annotation):
            found += _paths(section, f"{prefix}{name}.")
        for section in _sections(field.annotation, named=True):
            found += [f"{prefix}{name}.*", *_paths(section, f"{prefix}{name}.*.")]
    return found


def _sections(annotation: Any, *, named: bool = False) -> list[type[BaseModel]]:
    """The sections that an annotation allows; with `named`, those under names that the user chooses."""
    if get_origin(annotation) in (Union, types.UnionType, typing.Annotated):
        return [section for part in get_args(annotation) for section in _sections(part, named=named)]
    if named:
        return _sections(get_args(annotation)[1]) if get_origin(annotation) is dict else []
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
