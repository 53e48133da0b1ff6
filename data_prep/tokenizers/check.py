"""Refuse to mix data of different tokenizers."""

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer


def require_same_tokenizer(tokenizer: Tokenizer, owner: object, fingerprint: str, data: object, remedy: str) -> None:
    """Raise InputError where `data`, of this fingerprint, were not tokenised with the `tokenizer` of `owner`."""
    if fingerprint != tokenizer.fingerprint:
        raise InputError(f"{data} was tokenised with another tokenizer than {owner}: {remedy}")
