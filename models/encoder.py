"""Any Hugging Face encoder as the trunk: building it from a recipe's keys, running it, pooling."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

Pooling = Literal["cls", "mean", "last"]

# keys of which Hugging Face checks no value, or by dividing by it
COUNTS = (
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
)
# what its classes raise of a wrong type, activation, pad_token_id or number, and of what is no plain encoder
REFUSALS = (
    StrictDataclassError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
)


class TrunkModel(nn.Module):
    """A model around an encoder, its `trunk`."""

    trunk: PreTrainedModel
    trains_every_position = False  # a pre-training does that moves its words, however few, over all of the trunk's

    @property
    def heads(self) -> dict[str, nn.Parameter]:
        """The weights beside the trunk's, by name: those that a method learns and leaves behind."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("trunk.")}

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """What the method makes of a text, [B, H], of ids `[CLS] text [SEP]` int64 and mask bool [B, T]: here, h_0."""
        return encode(self.trunk, input_ids, attention_mask)[:, 0]


def build_trunk(config: Mapping[str, Any]) -> PreTrainedModel:
    """A randomly initialised encoder without pooler, in fp32, with SDPA attention.

    Args:
        config: `model_type` (bert, roberta, ...) and any keys of that type's Hugging Face configuration. The
            caller sets `vocab_size` and `pad_token_id` from the tokenizer.

    Raises:
        ValueError: an unknown key or type (naming the nearest valid one), or a value that Hugging Face refuses.
    """
    settings = dict(config)
    model_type = settings.pop("model_type", None)
    config_class = CONFIG_MAPPING[_known("model_type", model_type, CONFIG_MAPPING)]
    model_class: Any = MODEL_MAPPING.get(config_class, None)
    if not isinstance(model_class, type):  # Funnel has two
        raise ValueError(f"model_type {model_type!r} has no plain encoder")
    valid = {field.name for field in dataclasses.fields(config_class)} | set(config_class.attribute_map)
    for key in settings:
        _known(f"{model_type} configuration key", key, valid)
    for key in sorted({*COUNTS, *(config_class.attribute_map.get(key, key) for key in COUNTS)} & settings.keys()):
        if isinstance(settings[key], int) and settings[key] < 1:
            raise ValueError(f"{model_type} configuration: {key} must be at least 1, not {settings[key]}")
    has_pooler = "add_pooling_layer" in inspect.signature(model_class).parameters
    options = {"add_pooling_layer": False} if has_pooler else {}
    try:
        resolved = AutoConfig.for_model(model_type, **settings)
        trunk = AutoModel.from_config(resolved, attn_implementation="sdpa", dtype=torch.float32, **options)
    except REFUSALS as error:
        raise ValueError(f"{model_type} configuration: {' '.join(str(error).split())}") from error
    max_positions(trunk)  # refuses what has none
    return trunk


def _known(what: str, name: Any, valid: Iterable[str]) -> str:
    """`name` if it is valid, else a ValueError naming the nearest valid one."""
    if name in (names := sorted(valid)):
        return name
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0)
    raise ValueError(f"unknown {what} {name!r}; nearest valid: {near[0]!r}")


def max_positions(trunk: PreTrainedModel) -> int:
    """The longest input, in tokens, that the trunk has positions for.

    RoBERTa and its kin number positions from padding_idx + 1, so their table is longer than their longest input.

    Raises:
        ValueError: it does not say.
    """
    most = getattr(trunk.config, "max_position_embeddings", None)
    if not isinstance(most, int):
        raise ValueError(f"model_type {trunk.config.model_type!r} has no max_position_embeddings: take another encoder")
    embeddings = getattr(trunk, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return most - (0 if padding_idx is None else padding_idx + 1)


def token_embedding(trunk: PreTrainedModel) -> nn.Parameter:
    """The trunk's token embeddings [V, H]. To be asked for inside forward: there ZeRO-3 gathers it."""
    weight = trunk.get_input_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    return weight


@dataclass(frozen=True)
class Shape:
    """What the heads of a pre-training copy of their trunk, by BERT's names for it."""

    vocab_size: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    layer_norm_eps: float
    initializer_range: float


OTHER_NAMES = {  # DistilBERT's, ModernBERT's
    "intermediate_size": ("hidden_dim",),
    "hidden_act": ("activation", "hidden_activation"),
    "hidden_dropout_prob": ("dropout", "mlp_dropout"),
    "attention_probs_dropout_prob": ("attention_dropout",),
    "layer_norm_eps": ("norm_eps",),
}


def shape_of(trunk: PreTrainedModel) -> Shape:
    """The shape of a trunk whose token embedding is shared with its heads, whatever its configuration calls it.

    Raises:
        ValueError: a part of it is not to be found, or the embedding is not as wide as the hidden states.
    """
    config = trunk.config
    found: dict[str, Any] = {}
    for field in fields(Shape):
        names = (field.name, *OTHER_NAMES.get(field.name, ()))
        found[field.name] = next((getattr(config, name) for name in names if hasattr(config, name)), None)
    if found["layer_norm_eps"] is None:  # DistilBERT has it in the code alone
        found["layer_norm_eps"] = next((m.eps for m in trunk.modules() if isinstance(m, nn.LayerNorm)), None)
    if missing := [name for name, value in found.items() if value is None]:
        raise ValueError(f"cannot pre-train model_type {config.model_type!r}: it has no {', '.join(missing)}")
    width = trunk.get_input_embeddings().embedding_dim
    if width != found["hidden_size"]:
        raise ValueError(f"the token embedding is shared: its width {width} must be hidden_size {config.hidden_size}")
    return Shape(**found)


def is_causal(trunk: PreTrainedModel) -> bool:
    """Whether the configuration asks for causal attention: Hugging Face's key for it is `is_decoder`."""
    return bool(getattr(trunk.config, "is_decoder", False))


def check_cls_sees_the_text(trunk: PreTrainedModel) -> None:
    """Refuse a causal trunk where the state of [CLS] is to stand for a text: there it is the same for every text.

    Raises:
        ValueError: it is causal.
    """
    if is_causal(trunk):
        raise ValueError("the trunk is causal (is_decoder), so [CLS] sees no text: pool the last position")


def check_token_types(trunk: PreTrainedModel) -> None:
    """Refuse a trunk that cannot tell the two texts of a pair apart.

    Raises:
        ValueError: it has no two token types, as RoBERTa, DistilBERT and ModernBERT have not.
    """
    table = getattr(getattr(trunk, "embeddings", None), "token_type_embeddings", None)
    number = 0 if table is None else table.num_embeddings
    if number < 2:
        raise ValueError(
            f"needs a trunk with 2 token types, as BERT has: model_type {trunk.config.model_type!r} has {number}"
        )


def encode(
    trunk: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_types: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The trunk's last hidden states.

    Args:
        trunk: as `build_trunk` makes it.
        input_ids: int64 [B, T].
        attention_mask: bool [B, T], true where there is a token; padding is on the right.
        token_types: int64 [B, T], for a trunk that has them (`check_token_types`); without them all are 0.
        positions: int64 [B, T], for a trunk that takes them; without them they are its own.

    Returns:
        [B, T, H] in the trunk's dtype.
    """
    chosen = {"token_type_ids": token_types, "position_ids": positions}
    given = {name: values for name, values in chosen.items() if values is not None}
    return _run(trunk, input_ids, attention_mask, **given).last_hidden_state


def encode_with_layer(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """The hidden states that layer number `layer`, counted from 1, leaves, and the last ones, as `encode` gives them.

    In training they cost no memory: backward keeps every layer's output anyway.
    """
    output = _run(trunk, input_ids, attention_mask, output_hidden_states=True)
    return output.hidden_states[layer], output.last_hidden_state


def _run(trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, **options: bool | Tensor) -> Any:
    if is_causal(trunk):
        # Padding comes last, where no token looks: the causal mask is enough, and attention kernels make it themselves.
        return trunk(input_ids=input_ids, use_cache=False, **options)
    if trunk.config.model_type == "bert":
        # BERT takes a ready [B, 1, 1, T] mask; a [B, T] one it tests with .all(), which waits for the GPU.
        attention_mask = attention_mask[:, None, None, :]
    return trunk(input_ids=input_ids, attention_mask=attention_mask, **options)


def with_own_tokens(
    trunk: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, own: int
) -> tuple[Tensor, Tensor]:
    """Puts the last `own` rows of the trunk's token embedding after [CLS]: special tokens of the method itself.

    Args:
        trunk: whose embedding has these rows.
        input_ids: int64 [B, T], `[CLS] text [SEP]`.
        attention_mask: bool [B, T].
        own: how many, maybe 0.

    Returns:
        ids and mask, [B, T + own].
    """
    rows = trunk.config.vocab_size
    tokens = torch.arange(rows - own, rows, device=input_ids.device).expand(len(input_ids), -1)
    ids = torch.cat([input_ids[:, :1], tokens, input_ids[:, 1:]], dim=1)
    return ids, torch.cat([attention_mask[:, :1].expand(-1, 1 + own), attention_mask[:, 1:]], dim=1)


def pool(hidden: Tensor, attention_mask: Tensor, mode: Pooling) -> Tensor:
    """One vector a sequence.

    Args:
        hidden: [B, T, H].
        attention_mask: bool [B, T].
        mode: `cls` takes position 0 as it is, `last` the last position with a token, which in a causal encoder is
            the one that has seen all; `mean` averages the positions with a token, in fp32.

    Returns:
        [B, H], at least fp32.
    """
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    if mode == "cls":
        return hidden[:, 0].to(dtype)
    if mode == "last":
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        last = (positions * attention_mask).amax(dim=1)  # [B]
        return hidden[torch.arange(len(hidden), device=hidden.device), last].to(dtype)
    weights = attention_mask.to(dtype)
    weights = weights / weights.sum(dim=1, keepdim=True)
    return torch.einsum("bth,bt->bh", hidden.to(dtype), weights)


def select(hidden: Tensor, positions: Tensor) -> Tensor:
    """The rows of hidden [B, T, H] at flat positions int64 [N]: [N, H]."""
    return hidden.flatten(0, 1).index_select(0, positions)


@torch.no_grad()
def initialise(module: nn.Module, std: float) -> None:
    """BERT's initialisation: matrices N(0, std), biases 0, LayerNorms the identity."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.weight.normal_(0.0, std)
            part.bias.zero_()
        elif isinstance(part, nn.Embedding):
            part.weight.normal_(0.0, std)
