"""Bound what a tokenizer.json does with a text: one of a few bytes could make gigabytes of a word, or take for ever."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from deepsiam.data_prep.common.errors import InputError

DEEPEST = 8  # steps within steps
MOST_STEPS = 64  # of a part of a tokenizer; published ones have ten or so
MOST_ITEMS = 256  # of a list, such as the tokens around a text
LONGEST_STRING = 8_192  # characters of all patterns of a part
LARGEST_CHARSMAP = 1 << 22  # characters in base64; nmt_nfkc's has 316,720
LONGEST_REPLACEMENT = 256  # bytes of a charsmap; nmt_nfkc's has 33, for one character of Arabic
LONGEST_NAME = 100  # characters of the model's special tokens and prefixes
MOST_ADDED = 50_000  # tokens, each of which is looked for in each text
LONGEST_WORD = 1_000  # characters that WordPiece may take apart, in cubic time
GROWTH, EXTRA_LENGTH = 32, 64  # characters that a text may become: so many times as many, and so many more
PROBED = 256  # characters of the patterns that are tried

_PROBES = ("a", "A", "1", ".", " ", "\n", "é", "漢", "😀")
_CHARSMAP = "precompiled_charsmap"
_EMPTY_TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
_RUN: dict[str, Callable[[tokenizers.Tokenizer, str], str]] = {
    "normalizer": lambda backend, text: backend.normalizer.normalize_str(text),
    "pre_tokenizer": lambda backend, text: "".join(piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)),
    "decoder": lambda backend, text: backend.decoder.decode([text]),
}


def require_bounded(content: Mapping[str, Any]) -> None:
    """Raise ValueError where a tokenizer.json, as JSON, has too much of something, or a text grows without bound."""
    for part in (*_RUN, "post_processor"):
        steps = list(_steps(content.get(part), part))
        if len(steps) > MOST_STEPS:
            raise ValueError(f"{part} has {len(steps):,} steps, and at most {MOST_STEPS} are supported")
        strings = [text for step in steps for text in _strings(step, part)]
        if sum(map(len, strings)) > LONGEST_STRING:
            raise ValueError(f"{part} has patterns of more than {LONGEST_STRING:,} characters")
        if part in _RUN:
            _require_little_growth(part, steps, strings)
    model = content["model"]
    for key, value in model.items():
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            raise ValueError(f"model.{key} has more than {LONGEST_NAME} characters")
    if model.get("max_input_chars_per_word", 0) > LONGEST_WORD:
        raise ValueError(f"model.max_input_chars_per_word is above {LONGEST_WORD:,}, the most that is supported")
    if len(content.get("added_tokens") or ()) > MOST_ADDED:
        raise ValueError(f"added_tokens has more than {MOST_ADDED:,} items, the most that is supported")


@contextmanager
def panics_as_input_errors(path: Path) -> Iterator[None]:
    """Turn a panic of the library's Rust code, as where a pattern takes too long on a text, into an InputError."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception, and its class cannot be imported
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{path}: fails at a text ({error!s:.200}); use another tokenizer") from None


def _steps(step: Any, part: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part in order; a sequence's are a list, whatever its name."""
    if depth > DEEPEST:
        raise ValueError(f"{part} has steps within steps more than {DEEPEST} deep")
    if not isinstance(step, dict):
        return
    if step.get("type") != "Sequence":
        yield step
        return
    for inner in (step for value in step.values() if isinstance(value, list) for step in value):
        yield from _steps(inner, part, depth + 1)


def _strings(value: Any, part: str) -> Iterator[str]:
    """Yield the strings in a step; check its lists and its map of characters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if len(value) > MOST_ITEMS:
            raise ValueError(f"{part} has a list of {len(value):,} items, and at most {MOST_ITEMS} are supported")
        texts = sum(isinstance(item, dict) and "Sequence" in item for item in value)
        if texts > 2:
            raise ValueError(f"{part} has a text {texts} times")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key == _CHARSMAP:
                _require_short_replacements(item, part)
            else:
                yield from _strings(item, part)


def _require_short_replacements(charsmap: Any, part: str) -> None:
    """Check a map of characters of SentencePiece: a trie after its size, then the replacements with NULs between."""
    if isinstance(charsmap, str) and len(charsmap) <= LARGEST_CHARSMAP:
        content = base64.b64decode(charsmap)
        replacements = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
        if max(map(len, replacements)) <= LONGEST_REPLACEMENT:
            return
    raise ValueError(f"{part}.{_CHARSMAP} is larger, or makes more of a character, than any that is published")


def _require_little_growth(part: str, steps: list[dict[str, Any]], strings: list[str]) -> None:
    """Run the steps one by one on what is in their patterns, so that no text is longer than one step makes it."""
    runs = [tokenizers.Tokenizer.from_str(json.dumps({**_EMPTY_TOKENIZER, part: step})) for step in steps]
    probes = dict.fromkeys([*_PROBES, *sorted(set("".join(strings)))[:PROBED], *strings])
    for probe in filter(None, probes) if runs else ():
        text = probe * 8
        for backend in runs:
            text = _RUN[part](backend, text)
            if len(text) > GROWTH * 8 * len(probe) + EXTRA_LENGTH:
                grown = f"{part} makes {len(text):,} characters or more of {8 * len(probe):,}"
                raise ValueError(f"{grown}, as of {probe!r:.40}")
