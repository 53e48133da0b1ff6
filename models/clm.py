"""Causal language modelling (Radford et al., 2018): every token from those before it, by the trunk itself.

The Cross-Thought paper's baseline "Language Model" (section 4.3). A text's embedding is the state of its last token,
the only one that has seen it all: fine-tune with `pooling: last`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import pad
from models.encoder import TrunkModel, encode, is_causal, pool, select, token_embedding
from models.losses import linear_cross_entropy
from models.mlm import MlmBatcher
from models.next_tokens import next_tokens
from models.task import MicroBatch


class ClmBatcher(MlmBatcher):
    """Documents -> MLM's blocks -> micro-batch; nothing is masked, and nothing left to chance.

    Arrays: `input_ids` int64 [B, T], `attention_mask` bool [B, T]; `clm_positions` int64 [N] into the flattened
    [B * T] and `clm_targets` int64 [N]: see `models.next_tokens`. [SEP] is a target like any other, [CLS] is none.
    """

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Pad the blocks; the rngs are not used."""
        input_ids, attention_mask = pad(examples, self.max_tokens, self.vocabulary.pad)
        positions, targets, count = next_tokens(examples, input_ids.shape[1])
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "clm_positions": positions,
            "clm_targets": targets,
        }
        return MicroBatch(arrays, {"clm": count})


class Clm(TrunkModel):
    """A causal trunk whose token embedding is also the output projection; nothing else is learned."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """`trunk` as `models.encoder.build_trunk` makes it, of a configuration with `is_decoder: true`.

        The configuration keeps the key, so that fine-tuning, evaluation and stock Hugging Face are causal too.

        Raises:
            ValueError: a position of the trunk sees later ones, or the embedding is not as wide as the states.
        """
        super().__init__()
        kind = f"model_type {trunk.config.model_type!r}"
        width, hidden = trunk.get_input_embeddings().embedding_dim, trunk.config.hidden_size
        if width != hidden:
            raise ValueError(f"{kind}: the embedding is the output too: its width {width} must be hidden_size {hidden}")
        if not _is_blind_to_later_tokens(trunk):
            if is_causal(trunk) or not hasattr(trunk.config, "is_decoder"):
                raise ValueError(f"{kind} has no causal attention: take bert or roberta, with trunk.is_decoder: true")
            raise ValueError(f"{kind} sees later tokens: set trunk.is_decoder: true")
        self.trunk = trunk

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The state of the last token, [B, H]."""
        return pool(encode(self.trunk, input_ids, attention_mask), attention_mask, "last")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, clm_positions: Tensor, clm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `ClmBatcher` as tensors -> {"clm": the sum over all tokens but the first of each block}."""
        hidden = encode(self.trunk, input_ids, attention_mask)
        embedding = token_embedding(self.trunk)
        return {"clm": linear_cross_entropy(select(hidden, clm_positions), embedding, None, clm_targets)}


@torch.no_grad()
def _is_blind_to_later_tokens(trunk: PreTrainedModel) -> bool:
    """Tried, not read off the configuration: some encoders have the key `is_decoder` and do not heed it."""
    training = trunk.training
    trunk.eval()
    first, second = [i for i in range(3) if i != trunk.config.pad_token_id][:2]
    mask = torch.ones(1, 2, dtype=torch.bool, device=trunk.device)
    pairs = (torch.tensor([[first, later]], device=trunk.device) for later in (first, second))
    states = [encode(trunk, ids, mask)[0, 0] for ids in pairs]
    trunk.train(training)
    return torch.allclose(states[0], states[1], rtol=0, atol=1e-5)
