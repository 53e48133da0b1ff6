"""A text that is put before others, such as "query: ": the token ids of both together."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from deepsiam.data_prep.tokenizers.frame import Ids

HEAD = 16  # tokens of a text that are read again behind the prompt
EQUAL_END = 6  # tokens: where so many at the end of the head keep their ids behind the prompt, so do all after them


@dataclass(frozen=True)
class Prompt:
    """A prompt and its tokenizer.

    Many tokenizers read the first word of a text otherwise behind a prompt: "query:" and "bread" can share a token, and
    the blank of "query: " can belong to the word after it. Texts are given as the ids that they have alone, so their
    first tokens are decoded and read again behind the prompt, unless these are unknown or begin within a character.
    White space that the tokenizer leaves out at the beginning of a text is not among its ids, and is not read either.
    """

    text: str
    ids: Ids  # of the prompt alone
    stem: Ids  # of the prompt before a text that keeps the ids that it has alone
    apart: bool  # whether every text keeps them, as white space ends the prompt and its last word
    added_tokens: Collection[int]  # the tokens that no prompt changes, and before which it is read as it is alone
    encode: Callable[[str], list[int]]  # a text -> its ids without a frame
    decode: Callable[[np.ndarray], str]

    def before(self, tokens: np.ndarray) -> np.ndarray:
        """Return the ids, int64, of the prompt and a text together, given those of the text alone."""
        begins_with_added = len(tokens) > 0 and int(tokens[0]) in self.added_tokens
        if len(tokens) and (begins_with_added or not self.apart):
            for head in (tokens[:HEAD], tokens):
                text = self.decode(head)
                for form in (text.removeprefix(" "), text):  # some put a blank before a text, and keep it in decoding
                    if (joined_tokens := self._joined(form, head, tokens)) is not None:
                        return joined_tokens
        is_alone = begins_with_added or not len(tokens)
        return np.concatenate([np.array(self.ids if is_alone else self.stem, np.int64), tokens])

    def fitting(self, tokens: np.ndarray, limit: int) -> np.ndarray:
        """Return a text's first tokens, as many as have at most `limit` ids together with the prompt."""
        if self.apart:
            return tokens[: limit - len(self.stem)]
        if len(tokens) + len(self.ids) + HEAD <= limit:  # the first word may be split in more tokens
            return tokens
        tokens = tokens[:limit]
        return tokens[: len(tokens) - max(0, len(self.before(tokens)) - limit)]

    def _joined(self, text: str, head: np.ndarray, tokens: np.ndarray) -> np.ndarray | None:
        """Return the ids of the prompt and all tokens, whose `head` is read again from its text; None if unsure."""
        text_ids, joined_ids = self.encode(text), self.encode(self.text + text)
        common = _common_end(text_ids, joined_ids)
        changed = len(text_ids) - common
        size = max(changed, 1)  # of a text whose blank was removed for nothing, the first token differs
        if text_ids[:size] != head[:size].tolist() or (common < EQUAL_END and len(head) < len(tokens)):
            return None
        return np.array([*joined_ids[: len(joined_ids) - common], *tokens[changed:].tolist()], np.int64)


def _common_end(ids: Sequence[int], other_ids: Sequence[int]) -> int:
    """Return how many ids at the end are the same."""
    shorter = min(len(ids), len(other_ids))
    return next((i for i in range(shorter) if ids[-1 - i] != other_ids[-1 - i]), shorter)
