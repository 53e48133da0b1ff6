"""Random numbers that depend only on a name."""

import hashlib

import numpy as np


def keyed_rng(name: str) -> np.random.Generator:
    """Build a counter-based generator from a name: the same on any machine, in any process, at any time."""
    key = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), "<u8")
    return np.random.Generator(np.random.Philox(key=key))
