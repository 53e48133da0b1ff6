"""How a prepared data set was made (its manifest's `source`): typed and bounded, since the file may be edited."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from deepsiam.data_prep.common import json_file
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import Count, Sha256, first_problem

MOST_SHARDS = 100_000  # of a split: what a manifest can list
MAX_COUNT = 1 << 53  # of any count: JSON readers agree on integers up to here

Share = Annotated[float, Field(ge=0, lt=1)]


class Record(json_file.Record):
    """A record without unknown keys."""

    model_config = ConfigDict(extra="forbid")


class _Part(Record):
    number: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    of: Annotated[int, Field(ge=1, le=MAX_COUNT)]

    @model_validator(mode="after")
    def _within(self) -> "_Part":
        if self.number > self.of:
            raise ValueError(f"number {self.number} is above of {self.of}")
        return self


class _Options(Record):
    """The options that later commands use; all are compared literally."""

    model_config = ConfigDict(extra="allow")
    held_out: Share
    shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)] | None
    keep_duplicates: bool
    near_duplicates: Share | None
    against: list[str]
    chunk_tokens: Annotated[int, Field(ge=1, le=MAX_COUNT)]


class _File(Record):
    name: str
    bytes: Count
    sha256: Sha256 | None  # None: only the beginning of the input was read


class _Inputs(Record):
    number: Count
    bytes: Count
    sha256: Sha256
    files: list[_File]  # [] if there are too many

    @model_validator(mode="after")
    def _complete(self) -> "_Inputs":
        if self.files and len(self.files) != self.number:
            raise ValueError(f"number {self.number} of {len(self.files)} files")
        return self


class _Spooled(Record):
    documents: Count
    bytes: Count


class _Stage(Record):
    name: str
    parameters: dict[str, Any]
    came: Count = Field(alias="in")
    out: Count
    dropped: dict[str, Count]
    guessed: dict[str, Count] = {}
    sentences: dict[str, Count] = {}  # left out, by the markup whose text is unknown
    guessed_for: dict[str, list[str]] = {}


class _Counts(Record):
    documents: Count
    segments: Count
    tokens: Count
    held_out_documents: Count
    dropped: dict[str, Count]


class Made(Record):
    """How documents were made, up to the removal of duplicates and after it."""

    command: str
    dialogues: bool
    pairs: bool = False  # each document has two segments, a query and a document
    options: _Options
    part: _Part
    inputs: _Inputs
    cut_off: dict[str, Count] = {}  # records read from files that end early, by name
    spooled: _Spooled
    stages: list[_Stage]

    @model_validator(mode="after")
    def _counted(self) -> "Made":
        out = sum(stage.out for stage in self.stages if stage.name == "cut")  # a part without input has no stages
        if out != self.spooled.documents:
            raise ValueError(f"spooled.documents {self.spooled.documents} of {out} that left the stage cut")
        return self


class Provenance(Made):
    """The `source` of the manifest of a prepared data set."""

    split: Literal["shards", "held_out"]
    ranges: Annotated[int, Field(ge=1, le=MOST_SHARDS)]
    counts: _Counts
    bands: Sha256 | None = None  # of the file that near-duplicates are found by


def stages_of(source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stages that a manifest's free-form `source` lists; none if they are not a preparation's."""
    listed = source.get("stages")
    try:
        stages = [_Stage.model_validate(stage) for stage in listed] if isinstance(listed, list) else []
    except ValidationError:
        return []
    return [stage.model_dump(by_alias=True, exclude_unset=True) for stage in stages]


def checked(source: Mapping[str, Any], where: object) -> dict[str, Any]:
    """Return the `source` of a manifest, checked to be one that a preparation writes."""
    if "command" not in source or "part" not in source:
        raise InputError(f"{where}: its shards are not those of a prepared data set; prepare it from its source")
    try:
        Provenance.model_validate(source)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error, 'source')}; prepare the data set again") from None
    return dict(source)


def require_every_part(numbers: Sequence[int], of: int, where: object) -> None:
    """Raise InputError unless `numbers` are 1 to `of`, each once; `where` names one of the parts."""
    counts = Counter(numbers)
    for number in range(1, of + 1):
        if counts[number] != 1:
            problem = "is named twice" if counts[number] else "is missing"
            raise InputError(f"{where} and others: part {number}/{of} {problem}; name every part once")
