"""The keys of a recipe's `data`: shards or labelled pairs, one source or a mix of several."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from deepsiam.models.config import Section, unhashed

# two keys of which a recipe has only one, each with the keys that belong to it
EXCLUSIVE = (
    (("trunk",), ("init_from", "bidirectional", "random_weights")),
    (("data.shards",), ("data.mix",)),
    (("data.collection", "data.split", "data.pairs"), ("data.mix", "data.mix_temperature")),
    (("data.mix_temperature",), ("data.mix.*.weight",)),
)


def _source_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w .-]*", name):
        raise ValueError(f"{name!r} is no name of a source: use letters, digits, _, -, . and blanks, a letter first")
    return name


SourceName = Annotated[str, AfterValidator(_source_name)]  # folders of a run are named so, too


class LanesConfig(Section):
    """The deterministic order of data (trainer/training/data/lanes.py); a resumed run may change only `workers`."""

    lanes: int = Field(64, ge=1, le=1 << 16)
    window: PositiveInt = 16  # chunks (in fine-tuning, units of pairs) that are shuffled together
    workers: int = Field(0, ge=0, le=1 << 10)  # loader processes per rank
    one_source_per: Literal["micro_batch", "step"] = unhashed("micro_batch")  # of a mix
    teacher: Path | None = unhashed(None)  # a folder of `trainer.embed`: the vectors that a loss learns

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, Any]:
        """Every source by name; one that is alone has the name ""."""


class MixedShardsConfig(Section):
    """One source of a mix: its shards, and its weight relative to the other sources."""

    shards: str
    weight: PositiveFloat


class ShardDataConfig(LanesConfig):
    """Shards of token documents, as written by data_prep: one source, or several with names and weights.

    They are in a folder, or at an http(s), s3 or file URL; remote shards are read through a cache on every host.
    """

    shards: str | None = None
    mix: dict[SourceName, MixedShardsConfig] | None = None
    cache: Path = Path("~/.cache/deepsiam/shards")
    cache_bytes: PositiveInt = 100_000_000_000

    @model_validator(mode="after")
    def _one_or_a_mix(self) -> ShardDataConfig:
        if (self.shards is None) == (not self.mix):
            raise ValueError("data: name either data.shards or, for several sources, data.mix (null for the other)")
        return self

    @property
    def sources(self) -> dict[str, MixedShardsConfig]:
        if self.shards is not None:
            return {"": MixedShardsConfig(shards=self.shards, weight=1.0)}
        return self.mix or {}


class PairSourceConfig(Section):
    """Labelled (query, relevant document) pairs of a collection."""

    collection: Path
    split: str = "train"
    pairs: PositiveInt | None = None  # how many, in an order that depends only on the seed; null: all


OVERRIDDEN = (
    *("query_prompt", "document_prompt", "loss", "negatives", "hard_negatives", "negatives_per_query"),
    *("candidates", "teacher_scale", "ignore_above"),
)
"""The keys of `method` that a source of a mix may override: none changes the model."""
METHOD_KEY = re.compile(rf"\bmethod\.({'|'.join(OVERRIDDEN)})\b")


def with_source_keys(name: str, message: str) -> str:
    """Replace the keys of `method` in a message by those of a source of a mix; a source without a name has none."""
    return METHOD_KEY.sub(lambda key: f"data.mix.{name}.{key[1]}", message) if name else message


def on_source(name: str, message: str) -> str:
    """Return a message `with_source_keys` that begins with the name of the source."""
    source, text = f"data.mix.{name}", with_source_keys(name, message)
    return text if not name or text.startswith(f"{source}.") else f"{source}: {text}"


class MixedPairsConfig(PairSourceConfig):
    """One source of a mix: its pairs, its weight, and the keys of `method` that it overrides."""

    model_config = ConfigDict(extra="allow")

    weight: PositiveFloat | None = None  # relative to the other sources
    refresh: bool = unhashed(True)  # whether a run with `refresh` mines for it

    @property
    def overrides(self) -> dict[str, Any]:
        """The keys of the recipe's method that this source replaces."""
        return dict(self.model_extra or {})


class PairDataConfig(LanesConfig):
    """Labelled pairs of one collection, or of several with names and weights."""

    collection: Path | None = None
    split: str = "train"
    pairs: PositiveInt | None = None
    mix: dict[SourceName, MixedPairsConfig] | None = unhashed(None)
    # instead of weights: a source weighs its number of examples to the power of 1 / this
    mix_temperature: float | None = unhashed(None, ge=0.1)

    @model_validator(mode="after")
    def _one_or_a_mix(self) -> PairDataConfig:
        if (self.collection is None) == (not self.mix):
            raise ValueError("data: name either data.collection or, for several sources, data.mix (null for the other)")
        if not self.mix and self.mix_temperature:
            raise ValueError("data.mix_temperature needs data.mix: remove it")
        if self.mix and (self.split, self.pairs) != ("train", None):
            raise ValueError("data.split and data.pairs need data.collection: set those of each source in data.mix")
        for name, source in self.sources.items():
            if (source.weight is None) != bool(self.mix_temperature):
                problem = "missing" if source.weight is None else "does not go with data.mix_temperature"
                remedy = "set a weight for every source, or data.mix_temperature and none"
                raise ValueError(f"data.mix.{name}.weight: {problem}: {remedy}")
        return self

    @property
    def sources(self) -> dict[str, MixedPairsConfig]:
        """Every source by name, in the order of the names; one that is alone has the name ""."""
        if self.collection is not None:
            return {"": MixedPairsConfig(collection=self.collection, split=self.split, pairs=self.pairs, weight=1.0)}
        return dict(sorted((self.mix or {}).items()))
