"""Random numbers that depend only on a purpose and integer keys."""

import hashlib
import struct
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """Pass a Philox key unchanged; `Philox(key=...)` would first read the system's entropy, which costs time."""

    def __init__(self, key: np.ndarray):
        self.key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        """Return the two 64-bit words that Philox asks for."""
        return self.key


def keyed_rng(purpose: str, *key: int) -> np.random.Generator:
    """Build a counter-based generator for a purpose and key: the same on any machine, in any process, at any time."""
    return np.random.Generator(np.random.Philox(_Key(_philox_key(purpose, key))))  # type: ignore[arg-type]


def keyed_rngs(purpose: str, keys: Iterable[tuple[int, ...]]) -> Iterator[np.random.Generator]:
    """Yield `keyed_rng(purpose, *key)` for each key, in a third of the time.

    It is the same generator, re-keyed: finish with each before taking the next.
    """
    rng = keyed_rng(purpose)
    state = rng.bit_generator.state
    for key in keys:
        state["state"]["key"] = _philox_key(purpose, key)
        rng.bit_generator.state = state
        yield rng


def _philox_key(purpose: str, key: tuple[int, ...]) -> np.ndarray:
    digest = hashlib.blake2b(purpose.encode() + struct.pack(f"<{len(key)}q", *key), digest_size=16).digest()
    return np.frombuffer(digest, dtype=np.uint64)
