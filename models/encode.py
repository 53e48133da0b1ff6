"""Run a Hugging Face encoder: token ids to hidden states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


def encode(
    trunk: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_types: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """Return the trunk's last hidden states.

    Args:
        trunk: as `models.trunk.build_trunk` builds it.
        input_ids: int64 [B, T].
        attention_mask: bool [B, T], true at a token; padding is on the right.
        token_types: int64 [B, T], for a trunk that has them (`models.trunk.check_token_types`); all 0 by default.
        positions: int64 [B, T], for a trunk that accepts position ids; by default the trunk numbers its positions.

    Returns:
        [B, T, H] in the trunk's dtype.
    """
    chosen = {"token_type_ids": token_types, "position_ids": positions}
    given = {name: values for name, values in chosen.items() if values is not None}
    return _run(trunk, input_ids, attention_mask, **given).last_hidden_state


def encode_with_layer(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """Return the hidden states after layer number `layer`, counted from 1, and the last ones, as `encode` does.

    In training this costs no memory: backward keeps every layer's output anyway.
    """
    output = _run(trunk, input_ids, attention_mask, output_hidden_states=True)
    return output.hidden_states[layer], output.last_hidden_state


def _run(trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, **options: bool | Tensor) -> Any:
    if is_causal(trunk):
        # No token attends to the padding on its right: the causal mask is enough, and attention kernels make it.
        return trunk(input_ids=input_ids, use_cache=False, **options)
    if trunk.config.model_type == "bert":
        # BERT accepts a ready [B, 1, 1, T] mask; it tests a [B, T] one with .all(), which waits for the GPU.
        attention_mask = attention_mask[:, None, None, :]
    return trunk(input_ids=input_ids, attention_mask=attention_mask, **options)


def is_causal(trunk: PreTrainedModel) -> bool:
    """Whether the configuration asks for causal attention: Hugging Face's key for it is `is_decoder`."""
    return bool(getattr(trunk.config, "is_decoder", False))


def insert_special_tokens(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, number: int
) -> tuple[Tensor, Tensor]:
    """Insert after [CLS] the special tokens that the method added: the last `number` rows of the token embedding.

    Args:
        trunk: its embedding has these rows.
        input_ids: int64 [B, T], `[CLS] text [SEP]`.
        attention_mask: bool [B, T].
        number: 0 or more.

    Returns:
        ids and mask, [B, T + number].
    """
    rows = trunk.config.vocab_size
    tokens = torch.arange(rows - number, rows, device=input_ids.device).expand(len(input_ids), -1)
    ids = torch.cat([input_ids[:, :1], tokens, input_ids[:, 1:]], dim=1)
    return ids, torch.cat([attention_mask[:, :1].expand(-1, 1 + number), attention_mask[:, 1:]], dim=1)
