"""Refuse to mix data of different tokenizers."""

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer


def require_same_tokenizer(tokenizer: Tokenizer, owner: object, fingerprint: str, data: object, remedy: str) -> None:
    """Raise InputError where `data` were not tokenised with `tokenizer`.

    Args:
        tokenizer: the one that is needed.
        owner: what it belongs to, in the message.
        fingerprint: of the tokenizer that `data` were made with.
        data: the data's name in the message.
        remedy: what to do, in the message.
    """
    if fingerprint != tokenizer.fingerprint:
        raise InputError(f"{data} was tokenised with another tokenizer than {owner}: {remedy}")
