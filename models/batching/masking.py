"""BERT's masking of one example (Devlin et al., 2018, section 3.1), counted as in the SEED authors' code."""

from __future__ import annotations

import numpy as np

from deepsiam.models.batching.roles import required
from deepsiam.models.interface import Vocabulary


class Masking:
    """Choose 15 % of the tokens as targets: 80 % become [MASK], 10 % a random token, 10 % stay.

    Special tokens are neither masked nor drawn at random, as in BERT. The SEED paper does not specify this, and its
    code also masks `<s>` and `</s>`.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float = 0.15) -> None:
        """Prepare the tables of ordinary tokens; `rate` is the share of tokens that become targets.

        Raises:
            ValueError: tokens are masked, and the vocabulary has no mask token.
        """
        self.rate = rate
        self._mask = required(vocabulary, "mask") if rate else vocabulary.pad
        self._is_ordinary = np.ones(vocabulary.vocab_size, dtype=bool)
        self._is_ordinary[list(vocabulary.special)] = False
        self._ordinary = np.flatnonzero(self._is_ordinary)

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask int(rate * n + U(0,1)) of the n ordinary tokens, without replacement.

        Args:
            ids: int64 [T], not changed.
            rng: the example's own generator, the only source of randomness.

        Returns:
            the masked ids [T] and the sorted target positions [m]; the targets are `ids[positions]`.
        """
        maskable = np.flatnonzero(self._is_ordinary[ids])
        count = int(self.rate * len(maskable) + rng.random())
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
        return min(tokens, int(self.rate * tokens) + 1)
