"""Run a Hugging Face encoder: token ids to hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.arrays import keep_lengths, lengths_of, on_device
from models.attention import attend_by_text
from models.causality import is_causal

TAKES_RECTANGLES = (
    "bert",
    "electra",
    "roberta",
    "xlm-roberta",
)  # model types that take a token's place from its position id alone
FULL = 0.75  # each text fills at least this share of its rectangle's width
WORTHWHILE = 0.9  # split only if at most this share of the slots remains


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


def encode_texts(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, token_types: Tensor | None = None
) -> Tensor:
    """Return the trunk's last hidden states, as `encode` does, at lower cost where lengths differ.

    The texts are sorted by length and split into rectangles, each as wide as its longest text. The trunk runs once over
    all rectangles, concatenated into one long row; only its attention handles them one by one. ZeRO-3 needs this single
    run: every rank gathers the weights equally often, whatever its lengths are.

    Args:
        trunk: any. Causal trunks and those not in `TAKES_RECTANGLES` get one rectangle, and so do all in
            `torch.export`, where lengths are not known.
        input_ids: int64 [B, T].
        attention_mask: bool [B, T]; padding is on the right.
        token_types: int64 [B, T], as in `encode`.

    Returns:
        [B, T, H]; zeros in the slots outside the rectangles, which are all padding.
    """
    rectangles: list[tuple[np.ndarray, int]] = []
    if trunk.config.model_type in TAKES_RECTANGLES and not is_causal(trunk) and not torch.compiler.is_exporting():
        rectangles = _rectangles(lengths_of(attention_mask), attention_mask.shape[1])
    if len(rectangles) < 2:
        return encode(trunk, input_ids, attention_mask, token_types)
    attend_by_text(trunk)
    width = input_ids.shape[1]
    order = np.concatenate([np.repeat(rows, columns) for rows, columns in rectangles])
    columns = np.concatenate([np.tile(np.arange(columns), len(rows)) for rows, columns in rectangles])
    tensors = on_device({"slots": order * width + columns, "positions": columns}, input_ids.device)
    slots, positions = tensors["slots"], tensors["positions"]
    seen = attention_mask.flatten()[slots].split([len(rows) * columns for rows, columns in rectangles])
    given = {} if token_types is None else {"token_type_ids": token_types.flatten()[slots][None]}
    states = trunk(
        input_ids=input_ids.flatten()[slots][None],
        attention_mask=attention_mask.new_ones(1, 1, 1, 1),  # a ready mask, to avoid one of slots x slots
        position_ids=positions[None] + first_position(trunk),
        rectangles=[mask.view(len(rows), -1) for mask, (rows, _) in zip(seen, rectangles, strict=True)],
        **given,
    ).last_hidden_state[0]
    padded = states.new_zeros(input_ids.numel(), states.shape[1]).index_copy(0, slots, states)
    return padded.view(*input_ids.shape, -1)


def _rectangles(lengths: np.ndarray, most: int) -> list[tuple[np.ndarray, int]]:
    """Split texts into rectangles, the longest first: row numbers, int64, and width; none if splitting saves little."""
    order = np.argsort(-lengths, kind="stable")
    cuts = _cuts(lengths[order].tolist())
    widths = [min(-(-width // 8) * 8, most) for _, _, width in cuts]
    if sum((end - start) * width for (start, end, _), width in zip(cuts, widths, strict=True)) > (
        WORTHWHILE * len(lengths) * most
    ):
        return []
    return [(order[start:end], width) for (start, end, _), width in zip(cuts, widths, strict=True)]


def _cuts(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split descending lengths where one is below `FULL` of its part's first: start, end and first length of each."""
    cuts, start = [], 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or lengths[end] < FULL * lengths[start]:
            cuts.append((start, end, max(1, lengths[start])))
            start = end
    return cuts


def first_position(trunk: PreTrainedModel) -> int:
    """Return the position id of a text's first token: RoBERTa and similar models count from padding_idx + 1."""
    embeddings = getattr(trunk, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding_idx is None else int(padding_idx) + 1


def encode_with_layer(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """Return the hidden states after layer number `layer`, counted from 1, and the last ones, as `encode` does.

    In training this costs no memory: every layer's output is kept for the backward pass anyway.
    """
    output = _run(trunk, input_ids, attention_mask, output_hidden_states=True)
    return output.hidden_states[layer], output.last_hidden_state


def _run(trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, **options: bool | Tensor) -> Any:
    on_cpu = input_ids.device.type == "cpu"
    if not on_cpu:
        attend_by_text(trunk)
    if is_causal(trunk):
        # No token attends to the padding on its right: the causal mask, which attention kernels apply, is enough.
        options |= {"use_cache": False} if on_cpu else {"use_cache": False, "attention_mask": attention_mask}
        return trunk(input_ids=input_ids, **options)
    if trunk.config.model_type == "bert":
        return trunk(input_ids=input_ids, attention_mask=attention_mask[:, None, None, :], **options)
    # numbers, as from a tokenizer: DeBERTa's convolution and XLNet subtract the mask from 1
    return trunk(input_ids=input_ids, attention_mask=attention_mask.long(), **options)


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
    tokens = torch.arange(rows - number, rows, device=input_ids.device).expand(input_ids.shape[0], -1)
    ids = torch.cat([input_ids[:, :1], tokens, input_ids[:, 1:]], dim=1)
    mask = torch.cat([attention_mask[:, :1].expand(-1, 1 + number), attention_mask[:, 1:]], dim=1)
    return ids, keep_lengths(mask, attention_mask, lambda lengths: np.where(lengths > 0, lengths + number, 0))
