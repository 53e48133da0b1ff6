"""The special tokens that a method cannot do without."""

from __future__ import annotations

from typing import Literal

from deepsiam.models.interface import Vocabulary

Role = Literal["cls", "sep", "mask"]
NAMES = {"cls": "a token before a text ([CLS])", "sep": "a token after a text ([SEP])", "mask": "a mask token ([MASK])"}


def required(vocabulary: Vocabulary, role: Role) -> int:
    """Return the id of a special token; raise ValueError where the tokenizer has none."""
    token: int | None = getattr(vocabulary, role)
    if token is None:
        raise ValueError(
            f"it needs {NAMES[role]}, which the tokenizer of the data does not have: choose another method, or a "
            "tokenizer like BERT's or RoBERTa's"
        )
    return token


def require_roles(vocabulary: Vocabulary, *roles: Role) -> None:
    """Refuse a tokenizer that lacks a special token; raise ValueError, naming the first missing one."""
    for role in roles:
        required(vocabulary, role)
