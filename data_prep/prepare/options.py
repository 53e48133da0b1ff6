"""The options of a preparation."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep.prepare.batches import Part
from data_prep.prepare.stages import Options as StageOptions
from data_prep.tokenizers import tokenizer


@dataclass(frozen=True)
class Options:
    """All options that determine the output."""

    source: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    stages: StageOptions = field(default_factory=StageOptions)
    keep_duplicates: bool = False
    near_duplicates: float | None = None
    against: tuple[str, ...] = ()
    held_out: float = 0.0
    tokenizer: str = ""  # the path of an existing tokenizer; "": train one
    tokenizer_kind: str = "wordpiece"
    vocab_size: int = 32768
    chunk_tokens: int = 32768
    shards: int | None = None
    part: Part = Part()
    limit: int | None = None  # the most records of the input to read
    accept_truncated: bool = False  # use the sound beginning of a file that is cut off
    text: bool = False  # write the cleaned text, without tokens

    def recorded(self) -> dict[str, Any]:
        """Return the options for a manifest: equal for two runs that turn the same input into the same output."""
        record = asdict(self)
        del record["part"]  # a key of its own in the manifest
        if self.tokenizer:
            record["tokenizer"] = tokenizer.load(Path(self.tokenizer)).fingerprint
        return json.loads(json.dumps(record))
