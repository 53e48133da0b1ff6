"""A run, described: YAML recipes that extend one another, dotted overrides, and errors that name the key."""

from __future__ import annotations

import difflib
import re
import threading
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


Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Section):
    """AdamW with linear warm-up, then a schedule's decay (trainer/schedule.py); weights of rank 1 never decay."""

    lr: PositiveFloat
    betas: tuple[Beta, Beta] = (0.9, 0.999)
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
    hang_seconds: float = Field(1800.0, gt=0, le=threading.TIMEOUT_MAX)  # without a step, a save or a validation batch


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
            raise ValueError("data: name either data.shards or, for several sources, data.mix (null for the other)")
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
    seed: int = Field(1, ge=0, lt=2**63)
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
    """YAML whose floats are the ones people write: 1e-4 too, which YAML 1.1 takes for a string; and no key twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.composer.ComposerError(None, None, f"the key {key.value!r} is there twice", key.start_mark)
            seen.add((key.tag, key.value))
        return node


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


def kind_of(values: Mapping[str, Any]) -> type[PretrainRecipe] | type[FinetuneRecipe]:
    """Which kind of recipe plain values are: a Siamese network is fine-tuned, every other method pre-trains."""
    method = values.get("method")
    return FinetuneRecipe if isinstance(method, Mapping) and method.get("name") == "siamese" else PretrainRecipe


def build(kind: type[AnyRecipe], values: Mapping[str, Any], where: str) -> AnyRecipe:
    """A typed recipe from plain values; `where` is named in the errors."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(dict.fromkeys(_explain(kind, problem) for problem in error.errors()))
        raise InputError(f"{where}: {problems}") from None


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    try:
        whole, text = path.resolve(), path.read_text(encoding="utf-8")
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: symbolic links in a circle
        raise InputError(f"{path}: no such recipe can be read ({getattr(error, 'strerror', None) or error})") from None
    if whole in seen:
        raise InputError(f"{path}: extends itself by way of {' -> '.join(str(p.name) for p in seen)}")
    values = _parse(text, str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path}: a recipe is a mapping of keys to values")
    base = values.pop("extends", None)
    if base is None:
        return values
    return _merge(_read(path.parent / str(base), (*seen, whole)), values)


def _parse(text: str, where: str) -> Any:
    """The plain values of a YAML text; InputError where it has none, naming `where` it stands."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader: builds plain values only
    except RecursionError:
        raise InputError(f"{where}: nested too deeply for a recipe") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        # PyYAML lets its constructors' own errors out: of 2020-13-45, `!!int x`, `!!bool x`
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())}") from None


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
    value = _parse(text, repr(override))
    *parents, leaf = key.split(".")
    section = values
    for depth, parent in enumerate(parents):
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            raise InputError(f"{override!r}: {'.'.join(parents[: depth + 1])} is a single value and has no keys")
    section[leaf] = value


def _explain(kind: type[BaseModel], problem: Any) -> str:
    """One pydantic problem as `path: what is wrong`, with the nearest valid name for an unknown key."""
    known = [_named(path, problem["loc"]) for path in _paths(kind, problem["loc"])]
    unknown_key = problem["type"] == "extra_forbidden"
    path = ""
    for depth, part in enumerate(problem["loc"], start=1):
        longer = f"{path}.{part}" if path else str(part)
        # pydantic also names the member of a union that it tried; that is no key
        if longer in known or (unknown_key and depth == len(problem["loc"])):
            path = longer
    if unknown_key:
        near = difflib.get_close_matches(path, [name for name in known if "*" not in name], n=1, cutoff=0.5)
        return f"{path}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
    if problem["type"] == "missing":
        return f"{'.'.join(map(str, problem['loc']))}: missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    return f"{path}: {message[0].lower()}{message[1:]}, not {problem['input']!r}"


def _named(path: str, loc: tuple[int | str, ...]) -> str:
    """A path whose `*` is what the user has there, if anything."""
    before, star, after = path.partition("*")
    depth = before.count(".")
    there = star and len(loc) > depth and f"{'.'.join(map(str, loc[:depth]))}." == before
    return f"{before}{loc[depth]}{after}" if there else path


def _paths(kind: type[BaseModel], loc: tuple[int | str, ...], prefix: str = "") -> list[str]:
    """Every dotted key that a recipe of this kind may have; `*` stands for a name that the user chooses.

    Of sections that go by their `name`, only the keys of the one that `loc` names.
    """
    found = []
    for name, field in kind.model_fields.items():
        found.append(prefix + name)
        sections = _sections(field.annotation)
        chosen = [s for s in sections if loc[:1] == (name,) and len(loc) > 1 and _has_name(s, loc[1])]
        for section in chosen or sections:
            found += _paths(section, loc, f"{prefix}{name}.")
        for section in _sections(field.annotation, named=True):
            found += [f"{prefix}{name}.*", *_paths(section, loc, f"{prefix}{name}.*.")]
    return found


def _has_name(section: type[BaseModel], name: int | str) -> bool:
    """Whether it is the section that goes by this `name`."""
    return "name" in section.model_fields and name in get_args(section.model_fields["name"].annotation)


def _sections(annotation: Any, *, named: bool = False) -> list[type[BaseModel]]:
    """The sections that an annotation allows; with `named`, those under names that the user chooses."""
    if get_origin(annotation) in (Union, types.UnionType, typing.Annotated):
        return [section for part in get_args(annotation) for section in _sections(part, named=named)]
    if named:
        return _sections(get_args(annotation)[1]) if get_origin(annotation) is dict else []
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
