"""The Poly-encoder (Humeau et al., 2020, section 4.4): a query has m vectors, and each document attends to them.

    query    --> encoder --> h_1 ... h_N --> y_1 ... y_m --+
                                                           +--> sum_i w_i <y_i, c>,  w = softmax_i <y_i, c>
    document --> encoder --> h_1 ... h_N --> c ------------+

The paper calls them context and candidate.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.framing import TextEnd
from deepsiam.models.config import Side
from deepsiam.models.encode import encode_texts
from deepsiam.models.layers.pooling import pool
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from deepsiam.models.trunk import require_bidirectional
from deepsiam.models.vectors import Vectors, one_vector, score_in_blocks

VectorsOfQuery = Literal["learnt", "first", "last", "last_and_first"]
Reduction = Literal["first", "mean"]


class PolyEncoderConfig(DualEncoderConfig):
    """Fine-tuning of a Poly-encoder; lengths are ParlAI's, and by default a dialogue keeps its last turns."""

    folder_kind = "two encoders"

    name: Literal["poly_encoder"]
    codes: VectorsOfQuery = "learnt"  # or m of the states; last_and_first adds h_1 (appendix C)
    m: PositiveInt = 64  # the paper tests 16, 64 and 360
    reduction: Reduction = "first"  # how a document's states become one vector: h_1, or their mean (ParlAI's README)
    output_scaling: PositiveFloat | None = None  # factor on the states of both towers; null: hidden_size ** -0.25
    towers: Literal[1, 2] = 2
    max_query_tokens: int = Field(360, ge=3)
    max_document_tokens: int = Field(72, ge=3)
    kept_of_query: TextEnd = "end"

    @model_validator(mode="after")
    def _keys_suit_each_other(self) -> PolyEncoderConfig:
        if self.m > self.max_query_tokens:
            raise ValueError(
                f"method.m={self.m} vectors are more than a query's states, at most "
                f"method.max_query_tokens={self.max_query_tokens}"
            )
        if self.learn_temperature:  # it would scale the query's vectors, and so the attention, but in training only
            raise ValueError("method.learn_temperature is not for poly_encoder: set method.temperature")
        return self

    @property
    def uses_cls(self) -> bool:
        """Whether a vector is the state of [CLS]."""
        return self.reduction == "first" or self.codes in ("first", "last_and_first")

    def model(self, trunk: PreTrainedModel) -> PolyEncoder:
        return PolyEncoder(trunk, self)


class Codes(nn.Module):
    """m learnt codes, each of which attends to the states of a text: unscaled inner products."""

    def __init__(self, m: int, hidden_size: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, hidden_size).normal_(0.0, std))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return [B, m, H] from states [B, T, H], at least fp32, and mask bool [B, T]: padding has no weight."""
        logits = self.weight.to(states.dtype) @ states.transpose(1, 2)  # [B, m, T]
        return logits.masked_fill(~mask[:, None], -torch.inf).softmax(dim=2) @ states


class PolyEncoder(DualEncoder):
    """Two encoders or one, and, with learnt codes, `codes.`."""

    keys: PolyEncoderConfig
    kind = "poly"  # the weights of a query's vectors depend on the candidate

    def __init__(self, trunk: PreTrainedModel, keys: PolyEncoderConfig) -> None:
        super().__init__(trunk, keys)
        if keys.uses_cls:
            require_bidirectional(trunk)
        width = trunk.config.hidden_size
        # States after a LayerNorm have norm sqrt(H), so their inner products reach H: the softmax over a query's
        # vectors would have one weight of 1 from the start, and hardly any gradient. Scaled by H ** -0.25, the products
        # of unrelated states have a standard deviation of 1 for any H, as in a Transformer's own attention. ParlAI's
        # 0.06 suits its encoders of H = 768; after BERT's last LayerNorm it makes the weights nearly equal.
        self.scaling = keys.output_scaling or width**-0.25
        if keys.codes == "learnt":
            # Their own logits then have a standard deviation of 1. ParlAI draws codes from U(0, 1): their norm is
            # nearly the same, but their mean is 0.5, so the angles between codes, and the differences between a
            # query's vectors, are small. The paper says only "randomly initialised".
            self.codes = Codes(keys.m, width, std=1 / (self.scaling * width**0.5))

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        states = encode_texts(tower, ids, mask)
        return states.to(torch.promote_types(states.dtype, torch.float32)) * self.scaling

    def vectors(self, side: Side, encoded: Tensor, mask: Tensor) -> Vectors:
        """Return one vector for each document, [B, 1, H], and for each query up to m, or m + 1 for last_and_first."""
        if side == "document":
            return one_vector(pool(encoded, mask, "cls" if self.keys.reduction == "first" else "mean"))
        if self.keys.codes == "learnt":
            return Vectors(self.codes(encoded, mask), mask.new_ones(len(mask), self.keys.m))
        if self.keys.codes == "first":
            return Vectors(encoded[:, : self.keys.m], mask[:, : self.keys.m])
        return _last(encoded, mask, self.keys.m, and_first=self.keys.codes == "last_and_first")

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        return score_in_blocks(_attend, queries, documents)


def _last(states: Tensor, mask: Tensor, m: int, and_first: bool) -> Vectors:
    """Return the last m states of each text, plus the first state if it is not among them."""
    lengths = mask.sum(dim=1, keepdim=True)  # [B, 1]
    positions = lengths + torch.arange(-m, 0, device=mask.device)  # [B, m]
    is_state = positions >= 0  # a text may have fewer than m states
    if and_first:
        positions = torch.cat([torch.zeros_like(lengths), positions], dim=1)
        is_state = torch.cat([lengths > m, is_state], dim=1)
    rows = torch.arange(len(states), device=mask.device)[:, None]
    return Vectors(states[rows, positions.clamp(min=0)], is_state)


def _attend(queries: Vectors, documents: Vectors) -> Tensor:
    # sum_i w_i <y_i, c> equals <sum_i w_i y_i, c> of the paper, without the sums, [Q, D, H]
    products = queries.vectors @ documents.vectors[:, 0].T  # [Q, m, D]
    weights = products.masked_fill(~queries.mask[:, :, None], -torch.inf).softmax(dim=1)
    return (weights * products).sum(dim=1)
