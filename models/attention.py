"""The attention of a Hugging Face trunk: SDPA, within each text where texts stand in one long row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

BY_TEXT = "sdpa_by_text"


def attend_by_text(trunk: PreTrainedModel) -> None:
    """Let a trunk that uses SDPA accept `rectangles`, and make its masks on a GPU without waiting for it."""
    if trunk.config._attn_implementation == "sdpa":
        trunk.config._attn_implementation = BY_TEXT


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    rectangles: Sequence[Tensor] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as Hugging Face's sdpa does, [B, heads, T, d] -> [B, T, heads, d]; within each of `rectangles`, if given.

    The rectangles are masks, bool [b, t], of texts that are concatenated in a single row.
    """
    if rectangles is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    sizes = [mask.numel() for mask in rectangles]
    outputs = []
    for mask, *own in zip(rectangles, *(x[0].split(sizes, dim=1) for x in (query, key, value)), strict=True):
        q, k, v = (x.unflatten(1, mask.shape).transpose(0, 1) for x in own)  # [b, heads, t, d]
        output, _ = sdpa_attention_forward(module, q, k, v, mask[:, None, None], **options)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs)[None], None


def _mask(attention_mask: Tensor | None = None, device: torch.device | str = "cpu", **options: Any) -> Tensor | None:
    """Make a mask as for sdpa. On a GPU the host does not look into it, as it would to leave it out.

    There, causal attention needs none for padding, which is on the right.
    """
    if attention_mask is not None and torch.device(device).type != "cpu":
        if options.get("allow_is_causal_skip", True):
            attention_mask = None
        else:
            options["allow_is_bidirectional_skip"] = False
    return sdpa_mask(attention_mask=attention_mask, device=device, **options)


AttentionInterface.register(BY_TEXT, _attend)
AttentionMaskInterface.register(BY_TEXT, _mask)
