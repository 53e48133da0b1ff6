"""Find errors that show before any input is read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.collections.collection import texts_of
from data_prep.common import urls
from data_prep.common.errors import InputError
from data_prep.prepare import inputs, minhash, output, stages
from data_prep.prepare.options import Options
from data_prep.sources import registry
from data_prep.tokenizers import tokenizer


def check_options(options: Options) -> None:
    """Raise InputError if options contradict each other, or name something that does not exist or is not installed."""
    if options.text and (options.tokenizer or options.held_out):
        raise InputError("--text-only: --tokenizer and --held-out belong to the second step, the command cleaned")
    if options.part.of > 1 and not options.tokenizer and not options.text:
        raise InputError("--part: all parts need the same tokenizer; name it with --tokenizer")
    if options.tokenizer:
        tokenizer.load(Path(options.tokenizer))
    for folder in options.against:
        output.comparable(Path(folder), options.near_duplicates)
    if options.near_duplicates is not None:
        minhash.layout(options.near_duplicates)  # raises where its package is not installed
    for folder in options.stages.decontaminate:
        next(iter(texts_of(Path(folder))), None)
    stages.build(options.stages, True, np.empty(0, np.uint64))


def check_inputs(locations: Sequence[str], options: Options) -> None:
    """Raise InputError where a local input does not exist."""
    here = [Path(location) for location in locations if not urls.is_remote(location)]
    if here:
        inputs.listed(list(registry.SOURCES[options.source].find(here)))
