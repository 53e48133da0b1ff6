"""The vectors that an encoder computes for texts: one or several for each."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# vectors in a block of texts: their product, 2048 x 8192, takes 64 MB in fp32
QUERY_BLOCK, DOCUMENT_BLOCK = 2048, 8192


class Vectors(NamedTuple):
    """The vectors of B texts."""

    vectors: Tensor  # fp32 [B, m, H]
    mask: Tensor  # bool [B, m], true at a vector, false at padding


def one_vector(embeddings: Tensor) -> Vectors:
    """Return embeddings [B, H] as one vector for each text, in fp32 at least."""
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    return Vectors(embeddings[:, None].to(dtype), embeddings.new_ones(embeddings.shape[0], 1, dtype=torch.bool))


def score_in_blocks(score: Callable[[Vectors, Vectors], Tensor], queries: Vectors, documents: Vectors) -> Tensor:
    """Score every document for every query, [Q, D], in blocks of both, to bound the size of intermediate results.

    `score` makes [q, d] of the vectors of q queries and d documents; no score depends on other texts.
    """
    rows = [
        torch.cat([score(query_block, document_block) for document_block in _blocks(documents, DOCUMENT_BLOCK)], dim=1)
        for query_block in _blocks(queries, QUERY_BLOCK)
    ]
    return torch.cat(rows)


def _blocks(texts: Vectors, max_vectors: int) -> Iterator[Vectors]:
    """Yield blocks of texts with at most `max_vectors`, padding included, or a single text."""
    size = max(1, max_vectors // texts.mask.shape[1])
    return map(Vectors, texts.vectors.split(size), texts.mask.split(size))
