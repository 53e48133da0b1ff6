"""A random permutation of 0 to n - 1: stored if n is small, computed number by number (Feistel network) if large.

A group source puts all its examples into this order once; the lanes deal and shuffle them anew in every epoch.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rng

MOST_STORED = 1 << 20  # numbers in an array; ten million would take 80 MB of every rank, and most of a second
ROUNDS = 6  # of the network; no measurement of fewer is recorded


@dataclass(frozen=True)
class Shuffled:
    """The numbers below `size` in a shuffled order that takes no memory, indexed by arrays as an array is.

    A generalised Feistel network over two digits, with cycle walking (Black and Rogaway 2002, Ciphers with Arbitrary
    Finite Domains, method 3). `keys` are the keys of its rounds, uint64.
    """

    size: int
    keys: np.ndarray

    def __len__(self) -> int:
        """The number of numbers."""
        return self.size

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers at some places below `size`, both int64 [n]."""
        numbers = self._permuted(np.asarray(places, np.uint64))
        while len(outside := np.flatnonzero(numbers >= self.size)):
            numbers[outside] = self._permuted(numbers[outside])
        return numbers.astype(np.int64)

    def _permuted(self, numbers: np.ndarray) -> np.ndarray:
        """Permute the numbers below width * height, which are at least `size` and hardly more; uint64 [n]."""
        width = np.uint64(isqrt(self.size - 1) + 1)
        height = np.uint64(-(-self.size // int(width)))
        upper_digit, lower_digit = np.divmod(numbers, width)
        for i, key in enumerate(self.keys):
            if i % 2:
                upper_digit = (upper_digit + _hashed(lower_digit ^ key)) % height
            else:
                lower_digit = (lower_digit + _hashed(upper_digit ^ key)) % width
        return upper_digit * width + lower_digit


def shuffled(size: int, purpose: str, seed: int) -> np.ndarray | Shuffled:
    """Return the numbers below `size` in the order that a purpose and a seed give them."""
    rng = keyed_rng(purpose, seed)
    if size <= MOST_STORED:
        return rng.permutation(size)
    return Shuffled(size, rng.integers(1 << 64, size=ROUNDS, dtype=np.uint64))


def _hashed(numbers: np.ndarray) -> np.ndarray:
    # the finaliser of SplitMix64 (Steele, Lea, Flood 2014), of which 32 bits are used
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers >> np.uint64(32)
