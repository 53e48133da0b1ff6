"""The law of a cost curve: a fixed part, and a part that grows by a power of the size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

EXPONENTS = (0.2, 4.0)  # the range to search
STEPS = 401  # exponents tried at once
REFINEMENTS = 3  # further searches, each between the neighbours of the best exponent


class Law(NamedTuple):
    """fixed + factor * size ** exponent."""

    fixed: float
    factor: float
    exponent: float

    def at(self, sizes: np.ndarray) -> np.ndarray:
        """Return the values, fp64 [n], at sizes fp64 [n]."""
        return self.fixed + self.factor * sizes**self.exponent


def fit(sizes: Sequence[float], values: Sequence[float]) -> Law:
    """Fit a law to at least three sizes, all numbers above 0, by least squares of the relative errors.

    Neither the fixed part nor the factor is negative.
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(values, dtype=np.float64)
    low, high = EXPONENTS
    for _ in range(1 + REFINEMENTS):
        exponents = np.linspace(low, high, STEPS)
        fixed, factor, errors = _least_squares(x / x.max(), y, exponents)
        best = int(errors.argmin())
        low, high = exponents[max(0, best - 1)], exponents[min(STEPS - 1, best + 1)]
    exponent = float(exponents[best])
    return Law(float(fixed[best]), float(factor[best] / x.max() ** exponent), exponent)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the log-log slope over the upper half of the sizes, at least two: what doubling them costs there."""
    upper = max(2, -(-len(sizes) // 2))
    return float(np.polyfit(np.log(sizes[-upper:]), np.log(values[-upper:]), 1)[0])


def _least_squares(x: np.ndarray, y: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each exponent the best fixed part and factor, and the sum of squares: fp64 [E] each."""
    one, grown = 1 / y, x ** exponents[:, None] / y  # [n], [E, n]: relative, so that the target is 1
    a, b, c = one @ one, grown @ one, (grown * grown).sum(1)
    p, q = one.sum(), grown.sum(1)
    determinant = a * c - b * b
    fixed, factor = (c * p - b * q) / determinant, (a * q - b * p) / determinant
    fixed, factor = np.where(fixed < 0, 0, fixed), np.where(fixed < 0, q / c, factor)
    fixed, factor = np.where(factor < 0, p / a, fixed), np.where(factor < 0, 0, factor)
    return fixed, factor, ((fixed[:, None] * one + factor[:, None] * grown - 1) ** 2).sum(1)
