"""Find the special tokens of a tokenizer.json, of any family or mixture, from what the file itself says.

Whatever lies beside it (special_tokens_map.json, tokenizer_config.json) is not read: shards, collections and
checkpoints keep the tokenizer.json alone, and must come to the same tokens.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tokenizers

# by which names published files have them; where a file has several, see `_spelled`
SPELLINGS = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}


def find(backend: tokenizers.Tokenizer, content: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens by role: pad, unk, cls, sep and mask, without those that the file has not.

    [CLS] and [SEP] are what its post-processor puts around a text, [UNK] is its model's, [PAD] that of its padding;
    whatever the file does not say is found by its spelling.

    Args:
        backend: the tokenizer, as loaded from the file.
        content: the file's JSON.
    """
    vocabulary = backend.get_vocab(with_added_tokens=True)
    said = {**_frame(backend), "unk": _unknown(content), "pad": (content.get("padding") or {}).get("pad_token")}
    found = {role: token for role, token in said.items() if token in vocabulary}
    marked = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    for role in SPELLINGS.keys() - found.keys():
        if token := _spelled(role, vocabulary, marked, like=found.get("cls", "[")):
            found[role] = token
    return {role: found[role] for role in SPELLINGS if role in found}


def _frame(backend: tokenizers.Tokenizer) -> dict[str, str]:
    """Return the first and the last token of what the post-processor puts around a text, where it does both."""
    encoding = backend.encode("a")
    special = [bool(flag) for flag in encoding.special_tokens_mask]
    if len(special) < 2 or not (special[0] and special[-1]):
        return {}
    return {"cls": encoding.tokens[0], "sep": encoding.tokens[-1]}


def _unknown(content: Mapping[str, Any]) -> str | None:
    """Return the token that the model uses for what it does not know: a name, or in Unigram a number."""
    model = content["model"]
    number = model.get("unk_id")
    return model.get("unk_token") if number is None else model["vocab"][number][0]


def _spelled(role: str, vocabulary: Collection[str], marked: Collection[str], like: str) -> str | None:
    """Return the token whose spelling says its role: preferably a marked one, and in brackets like [CLS]'s."""
    spelled = [token for token in SPELLINGS[role] if token in vocabulary]
    return min(spelled, key=lambda token: (token not in marked, token[0] != like[0]), default=None)
