"""The options of a preparation, and the errors in them and in the inputs that show before anything is read."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.collection import texts_of
from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import require_once, sha256_of
from deepsiam.data_prep.prepare import inputs, minhash, output, stages
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.stages import StageOptions
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.sources import registry
from deepsiam.data_prep.tokenizers import tokenizer


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
    limit: int | None = None  # the most records to read of the input
    accept_truncated: bool = False  # use the sound beginning of a file that is cut off
    text: bool = False  # write the cleaned text, without tokens

    def recorded(self) -> dict[str, Any]:
        """Return the options for a manifest: equal for two runs that turn the same input into the same output."""
        record = asdict(self)
        del record["part"]  # a key of its own in the manifest
        if self.tokenizer:
            record["tokenizer"] = tokenizer.load(Path(self.tokenizer)).fingerprint
        compared = {folder: sha256_of(Path(folder) / "shards" / manifest.NAME) for folder in self.against}
        compared |= {folder: _sha256_of_texts(Path(folder)) for folder in self.stages.decontaminate}
        if compared:
            record["sha256"] = compared  # of what the text was compared with
        return json.loads(json.dumps(record))


def _sha256_of_texts(collection: Path) -> str:
    digest = sha256()
    for text in texts_of(collection):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def check_options(options: Options) -> None:
    """Raise InputError if options contradict each other, or name something that does not exist or is not installed."""
    if options.text and (options.tokenizer or options.held_out):
        raise InputError("--text-only: --tokenizer and --held-out belong to the second step, the command cleaned")
    if options.text and options.part.of > 1 and options.near_duplicates is not None:
        raise InputError("--near-duplicates: give it to the second step, the command cleaned, which joins the parts")
    if options.part.of > 1 and not options.tokenizer and not options.text:
        raise InputError("--part: all parts need the same tokenizer; name it with --tokenizer")
    if options.tokenizer:
        tokenizer.load(Path(options.tokenizer))
    for folder in options.against:
        output.comparable(Path(folder), options.near_duplicates)
    if options.near_duplicates is not None:
        require("dumps", "datasketch", feature="--near-duplicates")
        minhash.layout(options.near_duplicates)  # raises where that is no similarity
    for folder in options.stages.decontaminate:
        next(iter(texts_of(Path(folder))), None)
    stages.build(options.stages, True, np.empty(0, np.uint64))


def check_inputs(locations: Sequence[str], options: Options) -> None:
    """Raise InputError where a local input does not exist, or a file or address is named twice."""
    paths = [Path(location) for location in locations if not urls.is_remote(location)]
    addresses = Counter(urls.unsigned(location) for location in locations if urls.is_remote(location))
    for address in (urls.without_secrets(address) for address, number in addresses.items() if number > 1):
        raise InputError(f"{address}: is named twice; name every file once")
    if paths:
        files = list(registry.SOURCES[options.source].find(paths))
        inputs.listed(files)
        require_once(file.path.resolve() for file in files)
