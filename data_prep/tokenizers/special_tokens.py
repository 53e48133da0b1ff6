"""Find the special tokens of a tokenizer.json, of any family or mixture, from what the file itself says.

Whatever lies beside it (special_tokens_map.json, tokenizer_config.json) is not read: shards, collections and
checkpoints keep the tokenizer.json alone, and must come to the same tokens.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tokenizers

from deepsiam.data_prep.tokenizers import frame

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_TOKENS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}  # ids 0 to 4
# by which names published files have them; where a file has several, see `_spelled`
SPELLINGS = {
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|finetune_right_pad_id|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
    "cls": ("[CLS]", "<s>", "<bos>", "<|begin_of_text|>"),
    "sep": ("[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}
NEED_UNKNOWN = ("WordPiece", "WordLevel", "Unigram")  # models that fail at what they do not know
LONGEST_FRAME = 4  # tokens around a text: the shortest input of pre-training has 8


def find(backend: tokenizers.Tokenizer, content: Mapping[str, Any], vocabulary: dict[str, int]) -> dict[str, str]:
    """Return the special tokens by role: pad, unk, cls, sep and mask, without those that the file has not.

    [CLS] and [SEP] are the first and the last token that its post-processor puts around a text, [UNK] is its model's,
    [PAD] that of its padding; whatever the file does not say is found by its spelling. Unless the file has all five
    roles, as BERT's and RoBERTa's have, only a token that it marks as special has a role by its spelling: decoders'
    vocabularies have words such as </s>. Where no token is for padding, another one pads: padding is never read.

    Args:
        backend: the tokenizer, as loaded from the file.
        content: the file's JSON.
        vocabulary: its tokens, the added ones too, and their ids: each copy of it takes memory, so there is one.

    Raises:
        ValueError: there is no token for padding, or none for what the model does not know; or the post-processor puts
            more than LONGEST_FRAME tokens around a text.
    """
    unk, kind = _unknown(content), content["model"].get("type")
    if unk not in vocabulary and kind in NEED_UNKNOWN:
        raise ValueError(f"the vocabulary lacks {unk or 'a token'} for what its {kind} model does not know: add it")
    prefix, suffix = frame.read(backend).text
    if len(prefix) + len(suffix) > LONGEST_FRAME:
        around = backend.decode([*prefix, *suffix], skip_special_tokens=False)
        raise ValueError(
            f"post_processor makes {len(prefix)} + {len(suffix)} tokens around a text ({around:.80}), and at most "
            f"{LONGEST_FRAME} are supported: use another tokenizer"
        )
    framing = {
        "cls": backend.id_to_token(prefix[0]) if prefix else None,
        "sep": backend.id_to_token(suffix[-1]) if suffix else None,
        "unk": unk,
        "pad": (content.get("padding") or {}).get("pad_token"),
    }
    by_role = {role: token for role, token in framing.items() if token in vocabulary}
    marked = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    of_bert = _with_spelled(by_role, vocabulary, marked)
    if bool(prefix) == bool(suffix) and len(of_bert) == len(SPELLINGS):
        return of_bert
    framed = vocabulary if prefix or suffix else ()
    by_role = _without_repeated(_with_spelled(by_role, marked or framed, marked))
    padding = [by_role[role] for role in ("pad", "sep", "cls") if role in by_role] or sorted(marked)
    if not padding:
        raise ValueError(_lacking(of_bert))
    return {**by_role, "pad": padding[0]}


def _lacking(by_role: Mapping[str, str]) -> str:
    """Return what is wrong with a file without a usable special token, by the name of the nearer family."""
    families = (SPECIAL_TOKENS, ROBERTA_TOKENS)
    nearer = max(families, key=lambda family: len(family.items() & by_role.items()))
    lacks = " ".join(token for role, token in nearer.items() if role not in by_role)
    bert, roberta = (" ".join(family.values()) for family in families)
    return (
        f"the vocabulary lacks {lacks}; use a tokenizer.json that marks its special tokens, or one with a token for "
        f"padding, unknown words, start, end and mask, such as {bert} (BERT's) or {roberta} (RoBERTa's)"
    )


def _unknown(content: Mapping[str, Any]) -> str | None:
    """Return the token that the model uses for what it does not know: a name, or in Unigram a number."""
    model = content["model"]
    number = model.get("unk_id")
    return model.get("unk_token") if number is None else model["vocab"][number][0]


def _with_spelled(by_role: Mapping[str, str], tokens: Collection[str], marked: Collection[str]) -> dict[str, str]:
    """Return the roles that are found, and those that one of the tokens has by its spelling."""
    result = dict(by_role)
    for role in SPELLINGS.keys() - by_role.keys():
        if token := _spelled(role, tokens, marked, like=by_role.get("cls", "[")):
            result[role] = token
    return {role: result[role] for role in SPELLINGS if role in result}


def _without_repeated(by_role: Mapping[str, str]) -> dict[str, str]:
    """Return the roles without those whose token has an earlier one: OPT begins and ends with </s>."""
    roles = ("cls", "sep", "mask", "unk", "pad")
    by_token = {by_role[role]: role for role in reversed(roles[:-1]) if role in by_role}
    return {role: token for role, token in by_role.items() if role == "pad" or by_token[token] == role}


def _spelled(role: str, tokens: Collection[str], marked: Collection[str], like: str) -> str | None:
    """Return the token whose spelling says its role: preferably a marked one, and in brackets like [CLS]'s."""
    spelled = [token for token in SPELLINGS[role] if token in tokens]
    return min(spelled, key=lambda token: (token not in marked, token[0] != like[0]), default=None)
