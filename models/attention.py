"""The attention of a Hugging Face trunk: SDPA, also within each of several texts that stand in one long row."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

BY_TEXT = "sdpa_by_text"
Kernel = Callable[..., Tensor]  # its arguments are those of `flash`


class TextsInRow(NamedTuple):
    """Texts without padding in one row, and the kernel that attends within each."""

    kernel: Kernel
    ends: Tensor  # int32 [B + 1] on the device: 0, and where each text ends
    max_length: int
    causal: bool  # no token attends to a later one


def attend_by_text(trunk: PreTrainedModel) -> bool:
    """Let a trunk that uses SDPA accept `texts` or `rectangles`; on a GPU it makes masks without waiting, too.

    Return False for a trunk that does not use SDPA.
    """
    if trunk.config._attn_implementation == "sdpa":
        trunk.config._attn_implementation = BY_TEXT
    return bool(trunk.config._attn_implementation == BY_TEXT)


def kernel_for(device: torch.device, dtype: torch.dtype, head_size: int) -> Kernel | None:
    """Return a kernel for texts of different lengths; None where the device has none for this precision and size."""
    return flash if has_flash(device) and suits_flash(dtype, head_size) else None


def has_flash(device: torch.device) -> bool:
    """Whether PyTorch's FlashAttention kernel runs on a device."""
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)


def suits_flash(dtype: torch.dtype, head_size: int) -> bool:
    """Whether `flash` is for this precision and size of heads, forward and backward."""
    return dtype in (torch.float16, torch.bfloat16) and head_size % 8 == 0 and head_size <= 128


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    texts: TextsInRow,
    *,
    dropout: float,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Attend within each text by PyTorch's FlashAttention kernel, with dropout, forward and backward.

    Args:
        query: [S, heads, d], all texts one after the other.
        key, value: likewise; they may have fewer heads.
        texts: where the texts end.
        dropout: probability of dropping an attention weight.
        scale: of the scores; by default 1 / sqrt(d).
        window: attend only to tokens nearer than this.

    Returns:
        [S, heads, d].
    """
    reach = -1 if window is None else window - 1  # the kernel counts the tokens on one side, without the token itself
    ends, max_lengths = (texts.ends, texts.ends), (texts.max_length, texts.max_length)
    # the operator itself: torch.nn.attention.varlen has no dropout
    output: Tensor = torch.ops.aten._flash_attention_forward(
        *(query, key, value, *ends, *max_lengths, dropout, texts.causal, False),
        scale=scale,
        window_size_left=reach,
        window_size_right=0 if texts.causal else reach,
    )[0]
    return output


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    texts: TextsInRow | None = None,
    rectangles: Sequence[Tensor] = (),
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as Hugging Face's sdpa does, [B, heads, T, d] -> [B, T, heads, d]; or within `texts` or `rectangles`.

    The rectangles are masks, bool [b, t], of texts that are concatenated in a single row, as `texts` are too.
    """
    if texts is not None:
        rows = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # [S, heads, d], as the kernel reads them
        dropout, scale = options.get("dropout", 0.0), options.get("scaling")
        return texts.kernel(*rows, texts, dropout=dropout, scale=scale, window=sliding_window)[None], None
    if not rectangles:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    sizes = [mask.numel() for mask in rectangles]
    outputs = []
    for mask, *states in zip(rectangles, *(x[0].split(sizes, dim=1) for x in (query, key, value)), strict=True):
        q, k, v = (x.unflatten(1, mask.shape).transpose(0, 1) for x in states)  # [b, heads, t, d]
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
