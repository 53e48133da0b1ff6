"""Weights of a query's tokens that no encoder computes: a table of the vocabulary, counted or learned.

At search time a query costs a lookup for each of its tokens. `SparseConfig.query` chooses the table.
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.layers.shape import initialise, setting
from deepsiam.models.trunk import token_embedding

TEXTS_AT_ONCE = 4096  # whose tokens are counted together


class IdfTable(nn.Module):
    """The inverse document frequency of each token (Geng et al., 2024), counted once and never trained."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.idf = nn.Parameter(torch.ones(vocab_size), requires_grad=False)

    @torch.no_grad()
    def fit(self, frequencies: np.ndarray, documents: int) -> None:
        """Set the weights, as BM25 has them, from how many of the documents have each token, int64 [V]."""
        self.idf.copy_(torch.from_numpy(np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))))

    def forward(self, ids: Tensor, tower: PreTrainedModel) -> Tensor:
        """Return the weights of tokens, [B, T], of ids int64 [B, T]."""
        return self.idf[ids]


class LearnedTable(nn.Module):
    """log(1 + relu(w·e + b)), e the token's embedding in the encoder (Li-LSR: Nardini et al., 2025)."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        super().__init__()
        self.token_weight = nn.Linear(trunk.config.hidden_size, 1)
        initialise(self.token_weight, setting(trunk.config, "initializer_range", 0.02))
        nn.init.ones_(self.token_weight.bias)  # all tokens count at the start; below 0 none would learn

    def forward(self, ids: Tensor, tower: PreTrainedModel) -> Tensor:
        """Return the weights of tokens, fp32 [B, T], of ids int64 [B, T]."""
        embeddings = token_embedding(tower)[ids]  # inside this forward, where ZeRO-3 gathers it
        logits = self.token_weight(embeddings.to(self.token_weight.weight.dtype))[:, :, 0]
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).relu().log1p()


def document_frequencies(texts: Iterable[np.ndarray], vocab_size: int) -> tuple[np.ndarray, int]:
    """Return in how many texts, each token ids [t], every token of the vocabulary is, int64 [V], and how many texts."""
    frequencies, number, remaining = np.zeros(vocab_size, np.int64), 0, iter(texts)
    while several := list(islice(remaining, TEXTS_AT_ONCE)):
        owners = np.repeat(np.arange(len(several)), [*map(len, several)])
        once_a_text = np.unique(owners * vocab_size + np.concatenate(several))
        frequencies += np.bincount(once_a_text % vocab_size, minlength=vocab_size)
        number += len(several)
    return frequencies, number
