"""A language model that scores a pair by two tokens, as sentence-transformers' CrossEncoder writes it: `LogitScore`.

A ranker by labels takes its language model. Prompt and labels are those of a recipe: the folder's prompt is a chat
template, which is code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.training.published.hugging_face import read_keys
from deepsiam.trainer.training.published.modules import is_sentence_transformer, modules_of
from deepsiam.trainer.training.published.settings import MODULES

MODULE = "LogitScore"
TOKENS = ("true_token_id", "false_token_id")


def is_logit_score(folder: Path) -> bool:
    """Return whether a sentence-transformers folder scores pairs by the logits of one or two tokens."""
    return is_sentence_transformer(folder) and MODULE in modules_of(folder)


def refuse_other_modules(folder: Path) -> None:
    """Raise InputError where a folder that has `LogitScore` has more than that after its language model."""
    if extras := modules_of(folder).keys() - {"Transformer", MODULE}:
        raise InputError(f"{folder / MODULES}: has a {min(extras)} module, and only {MODULE} is supported")


def remark_on_labels(folder: Path, labels: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return a line that says so where a folder compares other tokens than these, that of relevance first; else "".

    Raises:
        InputError: what it compares is not tokens.
    """
    path = modules_of(folder)[MODULE] / "config.json"
    keys = read_keys(path)
    tokens = [keys[key] for key in TOKENS if keys.get(key) is not None]
    if keys.get(TOKENS[0]) is None or not all(type(token) is int and token >= 0 for token in tokens):
        raise InputError(f"{path}: {' and '.join(TOKENS)} are {tokens!r:.80}, not tokens; copy the folder again")
    if tokens == [*labels]:
        return ""
    theirs, ours = (" with ".join(repr(tokenizer.decode([token])) for token in ids) for ids in (tokens, labels))
    return f"{folder}: was published to compare {theirs}{' alone' * (len(tokens) == 1)}; the labels compare {ours}"
