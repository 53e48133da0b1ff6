"""Randomness that depends on nothing but its purpose and integer key."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """A Philox key as it is; `Philox(key=...)` would read the system's entropy first, for nothing."""

    def __init__(self, key: np.ndarray):
        self.key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        """The two 64-bit words that Philox asks for."""
        return self.key


def keyed_rng(purpose: str, *key: int) -> np.random.Generator:
    """A counter-based generator for a purpose and key: the same on any machine, in any process, at any time."""
    digest = hashlib.blake2b(purpose.encode() + struct.pack(f"<{len(key)}q", *key), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(_Key(np.frombuffer(digest, dtype=np.uint64))))  # type: ignore[arg-type]


def dropout_seed(seed: int, micro_batch: int) -> int:
    """What seeds torch before a global micro-batch: its dropout, too, is the same on any cluster."""
    return int(keyed_rng("dropout", seed, micro_batch).integers(2**63))
