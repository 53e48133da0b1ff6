"""What a model predicts: BERT's masked tokens (Devlin et al., 2018, section 3.1), or the next token at every slot."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepsiam.models.batching.packing import pad_flat
from deepsiam.models.interface import IGNORED, Vocabulary, required


class Masking:
    """Choose 15 % of the tokens as targets: 80 % become [MASK], 10 % a random token, 10 % stay.

    Special tokens are neither masked nor drawn at random, as in BERT. The SEED paper does not specify this, and its
    code also masks `<s>` and `</s>`.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float = 0.15) -> None:
        """Prepare the tables of ordinary tokens; `rate` is the share of tokens that become targets."""
        self.rate = rate
        self._mask = required(vocabulary, "mask") if rate else vocabulary.pad
        self._is_ordinary = np.ones(vocabulary.vocab_size, dtype=bool)
        self._is_ordinary[list(vocabulary.special)] = False
        self._ordinary = np.flatnonzero(self._is_ordinary)

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask int(rate * n + U(0,1)) of the n ordinary tokens of `ids`, int64 [T], without replacement.

        Return the masked ids [T] and the sorted target positions [m]; the targets are `ids[positions]`. The example's
        own generator is the only source of randomness.
        """
        maskable = np.flatnonzero(self._is_ordinary[ids])
        count = int(self.rate * len(maskable) + rng.random())  # the rate on average, for short texts too
        positions = np.sort(maskable[rng.choice(len(maskable), count, replace=False, shuffle=False)])
        fate = rng.random(count)
        replacement = np.where(fate < 0.8, self._mask, ids[positions])
        random_word = fate >= 0.9
        replacement[random_word] = self._ordinary[rng.integers(len(self._ordinary), size=random_word.sum())]
        masked = ids.copy()
        masked[positions] = replacement
        return masked, positions

    def most(self, tokens: int) -> int:
        """Return the maximum number of targets in an example of up to `tokens` ordinary tokens."""
        return min(tokens, int(self.rate * tokens) + 1)  # what int(rate * n + U(0,1)) can reach


class NextTokens(NamedTuple):
    """Slots of the padded rows that have a next token, and that token."""

    positions: np.ndarray  # int64 [N], into the flattened rows
    targets: np.ndarray  # int64 [N], -100 where the list is filled up
    number: int  # number of targets


def next_tokens(rows: Sequence[np.ndarray], width: int) -> NextTokens:
    """List the targets: slot t of a row predicts token t + 1; the last token of a row predicts nothing.

    Padding is never a target. N is rounded up to a multiple of 64 (filled with 0 and -100), so the output projection,
    as large as the vocabulary, computes little on padding and has few different shapes. `width` is that of the rows
    after padding.
    """
    count = sum(len(ids) - 1 for ids in rows)
    size = max(1, -(-count // 64)) * 64
    positions = [row * width + np.arange(len(ids) - 1) for row, ids in enumerate(rows)]
    return NextTokens(pad_flat(positions, size, 0), pad_flat([ids[1:] for ids in rows], size, IGNORED), count)
