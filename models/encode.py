"""Run a Hugging Face encoder: token ids to hidden states."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.arrays import keep_lengths, lengths_of, on_device
from deepsiam.models.attention import Kernel, TextsInRow, attend_by_text, kernel_for
from deepsiam.models.causality import is_causal

TAKES_RECTANGLES = (
    "bert",
    "electra",
    "roberta",
    "xlm-roberta",
)  # model types that take a token's place from its position id alone
UNPADS = (
    *TAKES_RECTANGLES,
    *("albert", "camembert", "distilbert", "ernie", "eurobert", "modernbert", "nomic_bert", "xlm-roberta-xl"),
    *("gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"),
)  # likewise, and a window, if they have one, from their position in the row; tests compare each with padded texts
# how texts are split into rectangles; no measurement of these two is recorded
MIN_FILL = 0.75  # each text fills at least this share of its rectangle's width
WORTHWHILE = 0.9  # split only if at most this share of the slots remains


class Row(NamedTuple):
    """Texts one after the other in a single row, with no padding, or little."""

    slots: Tensor | None  # int64 [S], in the flattened [B * T]; None for all
    places: Tensor  # int64 [S], of tokens in their texts
    attention: dict[str, Any]  # the options of the attention that finds the texts in the row

    def gather(self, values: Tensor) -> Tensor:
        """Choose the row from values [B, T]: [1, S]."""
        return values.flatten()[None] if self.slots is None else values.flatten()[self.slots][None]

    def put_back(self, states: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Place states [1, S, H] in [B, T, H], where the other slots are 0."""
        if self.slots is None:
            return states.reshape(*shape, -1)
        padded = states.new_zeros(math.prod(shape), states.shape[2]).index_copy(0, self.slots, states.squeeze(0))
        return padded.view(*shape, -1)


def encode(
    trunk: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_types: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """Return the trunk's last hidden states, [B, T, H] in its dtype; meaningless at padding.

    On a GPU in half precision no padding is computed, where the type allows it (`UNPADS`).

    Args:
        trunk: as `models.build_trunk` builds it.
        input_ids: int64 [B, T].
        attention_mask: bool [B, T], true at a token; padding is on the right.
        token_types: int64 [B, T], for a trunk that has as many (`models.trunk.token_types`); all 0 by default.
        positions: int64 [B, T], for a trunk that accepts position ids; by default the trunk numbers its positions.
    """
    row = _unpadded(trunk, attention_mask)
    return _states(trunk, input_ids, attention_mask, row, token_types, positions)[0]


def encode_texts(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, token_types: Tensor | None = None
) -> Tensor:
    """Return the trunk's last hidden states [B, T, H], as `encode` does, cheaper where lengths differ, on a CPU too.

    The texts are sorted by length and split into rectangles, each as wide as its longest text. The trunk runs once over
    all rectangles, concatenated into one long row; only its attention handles them one by one. ZeRO-3 needs this single
    run: every rank gathers the weights equally often, whatever its lengths are. Causal trunks and those not in
    `TAKES_RECTANGLES` get one rectangle, and so do all in `torch.export`, where lengths are not known.
    """
    row = _unpadded(trunk, attention_mask) or _in_rectangles(trunk, attention_mask)
    return _states(trunk, input_ids, attention_mask, row, token_types)[0]


def encode_slots(trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the states of all slots [B, T, H], also of those outside the mask, which no slot attends to."""
    return _states(trunk, input_ids, attention_mask, None)[0]


def encode_with_layer(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """Return the states after layer number `layer`, counted from 1, and the last ones, both [B, T, H] as of `encode`.

    In training this costs no memory: every layer's output is kept for the backward pass anyway.
    """
    row = _unpadded(trunk, attention_mask)
    last_states, layer_states = _states(trunk, input_ids, attention_mask, row, layer=layer)
    return layer_states, last_states


def _states(
    trunk: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    row: Row | None,
    token_types: Tensor | None = None,
    positions: Tensor | None = None,
    layer: int | None = None,
) -> list[Tensor]:
    """Run the trunk, on a row of the texts if one is given: the last states, and those after `layer`, [B, T, H]."""
    inputs = {"token_type_ids": token_types, "position_ids": positions}
    arguments = {name: values for name, values in inputs.items() if values is not None}
    options: dict[str, Any] = {} if layer is None else {"output_hidden_states": True}
    if is_causal(trunk) or _is_bidirectional_decoder(trunk):
        options["use_cache"] = False  # a decoder would keep all keys and values, for generating text
    if row is None:
        output = trunk(input_ids=input_ids, **arguments, **_padding(trunk, attention_mask), **options)
    else:
        row_arguments = {name: row.gather(values) for name, values in arguments.items()}
        output = trunk(
            input_ids=row.gather(input_ids),
            attention_mask=attention_mask.new_ones(1, 1, 1, 1),  # a ready mask, to avoid one of slots x slots
            **{"position_ids": row.places[None] + first_position(trunk), **row_arguments},
            **row.attention,
            **options,
        )
    # hidden_states[0] are the embeddings, so layer 1 is [1]
    states = [output.last_hidden_state] + ([] if layer is None else [output.hidden_states[layer]])
    return states if row is None else [row.put_back(each, tuple(input_ids.shape)) for each in states]


def _is_bidirectional_decoder(trunk: PreTrainedModel) -> bool:
    return not getattr(trunk.config, "is_causal", True)  # as `models.trunk.make_bidirectional` sets it


def _padding(trunk: PreTrainedModel, attention_mask: Tensor) -> dict[str, Tensor]:
    """Return the trunk's argument for padding; on a GPU `models.attention` makes what attention needs of it."""
    on_cpu = attention_mask.device.type == "cpu"
    if not on_cpu:
        attend_by_text(trunk)
    if is_causal(trunk) and on_cpu:
        # No token attends to the padding on its right: the causal mask, which attention kernels apply, is enough.
        return {}
    if trunk.config.model_type == "bert" and not is_causal(trunk):
        # BERT takes a ready [B, 1, 1, T] mask as it is; a [B, T] one it tests with .all(), which waits for a GPU
        return {"attention_mask": attention_mask[:, None, None, :]}
    # numbers, as from a tokenizer: DeBERTa's convolution and XLNet subtract the mask from 1
    return {"attention_mask": attention_mask.long()}


def unpadding_kernel(trunk: PreTrainedModel, device: torch.device) -> Kernel | None:
    """Return the attention by which a trunk computes no padding on a device, or None if it cannot do without."""
    config = trunk.config
    if config.model_type not in UNPADS:
        return None
    if _is_bidirectional_decoder(trunk) and getattr(config, "sliding_window", None):
        return None  # transformers' mask reaches a token further than the window that kernels are told
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kernel = kernel_for(device, trunk.dtype, size)
    return kernel if kernel and attend_by_text(trunk) else None


def _unpadded(trunk: PreTrainedModel, attention_mask: Tensor) -> Row | None:
    """Put the texts into a row without padding; None where the trunk or the device cannot."""
    device = attention_mask.device
    kernel = unpadding_kernel(trunk, device)
    if kernel is None or not (lengths := lengths_of(attention_mask)).any():
        return None
    width = attention_mask.shape[1]
    slots = np.flatnonzero(np.arange(width) < lengths[:, None])  # on the host: a GPU's nonzero() would make it wait
    ends = np.append(0, lengths[lengths > 0].cumsum()).astype(np.int32)
    row = on_device({"slots": slots, "places": slots % width, "ends": ends}, device)
    texts = TextsInRow(kernel, row["ends"], int(lengths.max()), is_causal(trunk))
    return Row(None if len(slots) == attention_mask.numel() else row["slots"], row["places"], {"texts": texts})


def _in_rectangles(trunk: PreTrainedModel, attention_mask: Tensor) -> Row | None:
    """Put the texts into a row of rectangles; None where the trunk cannot, or where it would save little."""
    if trunk.config.model_type not in TAKES_RECTANGLES or is_causal(trunk) or torch.compiler.is_exporting():
        return None
    max_width = attention_mask.shape[1]
    rectangles = _rectangles(lengths_of(attention_mask), max_width)
    if len(rectangles) < 2 or not attend_by_text(trunk):
        return None
    places = np.concatenate([np.tile(np.arange(width), len(rows)) for rows, width in rectangles])
    rows = np.concatenate([np.repeat(rows, width) for rows, width in rectangles])
    row = on_device({"slots": rows * max_width + places, "places": places}, attention_mask.device)
    masks = attention_mask.flatten()[row["slots"]].split([len(rows) * width for rows, width in rectangles])
    shaped = [mask.view(len(rows), width) for mask, (rows, width) in zip(masks, rectangles, strict=True)]
    return Row(row["slots"], row["places"], {"rectangles": shaped})


def _rectangles(lengths: np.ndarray, max_width: int) -> list[tuple[np.ndarray, int]]:
    """Split texts into rectangles, the longest first: row numbers, int64, and width; none if splitting saves little."""
    order = np.argsort(-lengths, kind="stable")
    cuts = _cuts(lengths[order].tolist())
    widths = [min(-(-width // 8) * 8, max_width) for _, _, width in cuts]  # as `models.batching.packing.pad` rounds
    if sum((end - start) * width for (start, end, _), width in zip(cuts, widths, strict=True)) > (
        WORTHWHILE * len(lengths) * max_width
    ):
        return []
    return [(order[start:end], width) for (start, end, _), width in zip(cuts, widths, strict=True)]


def _cuts(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split descending lengths where one is below `MIN_FILL` of its part's first: start, end, first length of each."""
    cuts, start = [], 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or lengths[end] < MIN_FILL * lengths[start]:
            cuts.append((start, end, max(1, lengths[start])))  # rows of padding alone keep a slot
            start = end
    return cuts


def first_position(trunk: PreTrainedModel) -> int:
    """Return the position id of a text's first token: RoBERTa and similar models count from padding_idx + 1."""
    embeddings = getattr(trunk, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding_idx is None else int(padding_idx) + 1


def as_rows(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids and mask of texts, [..., T], as [B, T]."""
    return ids.flatten(0, -2), keep_lengths(mask.flatten(0, -2), np.ravel, mask)


def in_one_run(run: Callable[[Tensor, Tensor], Tensor], *texts: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Apply `run`, an encoder of ids and mask [B, T] to [B, H] or [B, T, ...], once to several inputs of any B and T.

    Cheaper than a run for each if no padding is computed (`unpadding_kernel`): it starts half as many kernels for two.
    """
    widths, (ids, masks) = [mask.shape[1] for _, mask in texts], zip(*texts, strict=True)
    all_ids, mask = (torch.cat([F.pad(x, (0, max(widths) - x.shape[1])) for x in side]) for side in (ids, masks))
    encoded = run(all_ids, keep_lengths(mask, lambda *lengths: np.concatenate(lengths), *masks))
    parts = zip(encoded.split([len(each) for each in ids]), widths, strict=True)
    return [part if part.ndim == 2 else part[:, :width] for part, width in parts]


def insert_special_tokens(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, number: int
) -> tuple[Tensor, Tensor]:
    """Insert after [CLS] the special tokens that the method added, the last `number` rows of the token embedding.

    `input_ids` int64 and `attention_mask` bool, [B, T], become ids and mask [B, T + number].
    """
    rows = trunk.config.vocab_size
    tokens = torch.arange(rows - number, rows, device=input_ids.device).expand(input_ids.shape[0], -1)
    ids = torch.cat([input_ids[:, :1], tokens, input_ids[:, 1:]], dim=1)
    mask = torch.cat([attention_mask[:, :1].expand(-1, 1 + number), attention_mask[:, 1:]], dim=1)
    return ids, keep_lengths(mask, lambda lengths: np.where(lengths > 0, lengths + number, 0), attention_mask)
