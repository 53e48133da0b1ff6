"""Compare a folder's tokenizer.json with the tokenizer that transformers makes of the whole folder.

transformers rebuilds many tokenizers from tokenizer_config.json (casing, accents, special and added tokens, white
space), so that this file can contradict tokenizer.json. A collection has the tokens of tokenizer.json.
"""

from __future__ import annotations

import json
from itertools import product

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG, Tokenizer
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.settings import ADDED_TOKENS, SPECIAL_TOKENS, TOKENIZER, TRANSFORMER

LOWER_CASE = "do_lower_case"
SWITCHES = (LOWER_CASE, "strip_accents", "tokenize_chinese_chars", "add_prefix_space")  # of several tokenizer classes
PROBES = (
    "a word",
    "Every WORD of it, Straße, ΣΊΣΥΦΟΣ",
    "naïve café, ångström, señor",
    "漢字and日本語 한국어",
    "tabs,\tand\nlines",
    "don't pay $3.14 — “quotes” … me@mail.org #1 ½ ﬁ x² 😀",
)
WORDS = 2000  # of the vocabulary itself, as a text


def require_same_reading(folder: Folder) -> None:
    """Raise InputError where transformers would read texts otherwise, or put other tokens around them."""
    for file in folder.encoder.iterdir():
        if not (file.is_file() or file.is_dir()):
            raise InputError(f"{file}: not a plain file; copy the folder again")
    try:
        library_tokenizer = _load_library_tokenizer(folder)
        _compare_texts(folder, library_tokenizer)
        _compare_special_tokens(folder, library_tokenizer)
        _compare_frames(folder, library_tokenizer)
    except InputError:
        raise
    except Exception as error:  # of any class: what a damaged file makes transformers raise
        reason = " ".join(str(error).split())
        raise InputError(
            f"{folder.encoder / TOKENIZER_CONFIG}: transformers makes no tokenizer of the folder ({reason:.200})"
        ) from None


def _load_library_tokenizer(folder: Folder, **keys: bool) -> PreTrainedTokenizerBase:
    path = folder.encoder
    if not (path / TOKENIZER_CONFIG).is_file():  # AutoTokenizer would choose a class by the encoder's type alone
        return PreTrainedTokenizerFast(tokenizer_file=str(path / TOKENIZER), **keys)
    return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False, **keys)


def _compare_texts(folder: Folder, library_tokenizer: PreTrainedTokenizerBase) -> None:
    lower_case = bool(folder.transformer.get(LOWER_CASE))  # by sentence-transformers, before the tokenizer
    odd = _odd_text(folder.tokenizer, library_tokenizer, lower_case)
    if odd is None:
        return
    if lower_case and _odd_text(folder.tokenizer, library_tokenizer, False) is None:
        raise InputError(_difference(folder, TRANSFORMER, LOWER_CASE, odd, "false"))
    for key, value in product(SWITCHES, (True, False)):
        if _odd_text(folder.tokenizer, _load_library_tokenizer(folder, **{key: value}), lower_case) is None:
            raise InputError(_difference(folder, TOKENIZER_CONFIG, key, odd, str(value).lower()))
    raise InputError(_difference(folder, TOKENIZER_CONFIG, "tokenizer_class", odd))


def _odd_text(tokenizer: Tokenizer, library_tokenizer: PreTrainedTokenizerBase, lower_case: bool) -> str | None:
    """Return a text that the two tokenizers read differently; None if there is none."""
    words = sorted(tokenizer.vocabulary().keys() - set(tokenizer.special_tokens.values()))
    spelled = (word.removeprefix("##").lstrip("\u2581\u0120") for word in words[:: len(words) // WORDS + 1])
    for text in (*PROBES, " ".join(word for word in spelled if word)):
        if _ids(library_tokenizer, text.lower() if lower_case else text) != tokenizer.encode([text])[0].tolist():
            return text
    return None


def _compare_special_tokens(folder: Folder, library_tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = folder.tokenizer
    for token in {*library_tokenizer.get_added_vocab(), *tokenizer.special_tokens.values()}:
        text = f"a {token} b{token}"
        if _ids(library_tokenizer, text) != tokenizer.encode([text])[0].tolist():
            raise InputError(_difference(folder, *_named_in(folder, token), text))


def _compare_frames(folder: Folder, library_tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = folder.tokenizer
    framed, (prefix, suffix) = library_tokenizer("a"), tokenizer.text_frame
    own_ids = [*prefix, *tokenizer.encode(["a"])[0].tolist(), *suffix]
    if framed["input_ids"] != own_ids or any(framed.get("token_type_ids", ())):
        texts = (tokenizer.decode(ids) for ids in (own_ids, framed["input_ids"]))
        raise InputError(
            "{}: post_processor makes {!r:.80} of 'a', and transformers {!r:.80} of the folder, or a token type other "
            "than 0: make them agree, or use another encoder".format(tokenizer.path, *texts)
        )
    settings = folder.tokenizer_config
    for key, token, part, side in (
        ("add_bos_token", library_tokenizer.bos_token, prefix, "before"),
        ("add_eos_token", library_tokenizer.eos_token, suffix, "after"),
    ):
        has = token is not None and library_tokenizer.convert_tokens_to_ids(token) in part
        if token is not None and settings.get(key) not in (None, has):
            raise InputError(
                f"{folder.encoder / TOKENIZER_CONFIG}: {key} is {settings[key]!r:.80}, and tokenizer.json puts "
                f"{'' if has else 'no '}{token} {side} a text; transformers 4 went by the key, and 5 goes by "
                f"tokenizer.json: make its post_processor agree, or set {key} to {str(has).lower()}"
            )


def _ids(library_tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = library_tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _difference(folder: Folder, file: str, key: str, text: str, agreeing: str = "") -> str:
    path = folder.encoder / file
    value = folder.keys(path, allow_absent=True).get(key, "absent")
    change = f"set it to {agreeing}, or change tokenizer.json" if agreeing else "change one to agree with the other"
    return (
        f"{path}: with {key} ({value!r:.80}) {text!r:.60} is read otherwise than by tokenizer.json, whose "
        f"tokens a collection has: {change}"
    )


def _named_in(folder: Folder, token: str) -> tuple[str, str]:
    """Return the file and the key that name a token."""
    for name in (TOKENIZER_CONFIG, SPECIAL_TOKENS, ADDED_TOKENS):
        for key, value in folder.keys(folder.encoder / name, allow_absent=True).items():
            if token == key or json.dumps(token) in json.dumps(value):
                return name, key
    return TOKENIZER, "added_tokens"
