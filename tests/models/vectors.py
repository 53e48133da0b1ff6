"""Vectors of texts for the tests of code that compares them."""

import torch
import torch.nn.functional as F

from deepsiam.models.vectors import Vectors


def random_vectors(texts: int, m: int, seed: int, *, padded: bool = True) -> Vectors:
    """Vectors fp64 [texts, m, 8] of norms near 4; some are padding, never the first of a text."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(texts, m, generator=generator) < 0.6
    mask[:, 0] = True
    vectors = torch.randn(texts, m, 8, generator=generator, dtype=torch.float64) * 1.5
    return Vectors(vectors, mask if padded else torch.ones_like(mask))


def chosen(vectors: Vectors, row: int) -> Vectors:
    """The vectors of one text."""
    return Vectors(*(x[[row]] for x in vectors))


def stretched(vectors: Vectors, by: int, value: float) -> Vectors:
    """The same texts with more padding, whose vectors have this value."""
    return Vectors(F.pad(vectors.vectors, (0, 0, 0, by), value=value), F.pad(vectors.mask, (0, by)))
