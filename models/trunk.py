"""The trunk of a model, any Hugging Face encoder: the models' base class, the parts of a trunk, and its limits."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.causality import is_causal, is_causal_now
from deepsiam.models.encode import encode, first_position
from deepsiam.models.layers.pooling import Pooling, bottleneck
from deepsiam.models.vectors import Vectors, one_vector

# the longest input of a trunk with relative positions alone, such as T5's, which states no limit
POSITIONS_OF_DISTANCES = 2048
INSTEAD = (
    "take another encoder, such as bert, or make a decoder bidirectional (bidirectional, or trunk.is_causal=false)"
)


class TrunkModel(nn.Module):
    """The base class of every method's model: an encoder (`trunk`) and whatever the method puts on top of it."""

    trunk: PreTrainedModel
    keys: Any  # of the method; a run on several sources sets those of the source that the next micro-batch comes from
    from_base: frozenset[str] = frozenset()  # the parameters that adapters leave as the base has them
    newer: frozenset[str] = frozenset()  # the parameters that checkpoints of older code lack
    trains_every_position = False  # true where pre-training moves short inputs over all of the trunk's positions

    @property
    def heads(self) -> dict[str, nn.Parameter]:
        """The parameters outside the trunk, by name: the method trains them; an exported encoder does not have them."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("trunk.")}


class Encoder(TrunkModel):
    """The base class of models that turn a text into vectors, independently of what it is compared with."""

    pooling: Pooling = "cls"

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return the vectors of texts, ids `[CLS] text [SEP]` int64 and mask bool [B, T]: by default h_0."""
        return one_vector(bottleneck(encode(self.trunk, ids, mask), mask, self.pooling))

    def embed_queries(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return the vectors of queries, ids and mask [B, T]; by default they are encoded like documents."""
        return self.embed_documents(ids, mask)


def max_positions(trunk: PreTrainedModel) -> int:
    """Return the length, in tokens, of the longest input that the trunk has positions for.

    RoBERTa and similar models number positions from padding_idx + 1, so their table is longer than their longest input.
    """
    positions = getattr(trunk.config, "max_position_embeddings", None)
    if positions is None and hasattr(trunk.config, "relative_attention_max_distance"):
        return POSITIONS_OF_DISTANCES
    if not isinstance(positions, int) or positions < 1:  # XLNet's is -1
        raise ValueError(
            f"model_type {trunk.config.model_type!r} has no max_position_embeddings, the length of its longest input: "
            "take an encoder that has, such as bert"
        )
    return positions - first_position(trunk)


def require_positions(trunk: PreTrainedModel, tokens: int) -> None:
    """Raise ValueError where inputs of `tokens` tokens exceed the trunk's positions."""
    positions = max_positions(trunk)
    if tokens > positions:
        raise ValueError(f"{tokens} tokens are more than the trunk's {positions} positions")


def token_embedding(trunk: PreTrainedModel) -> nn.Parameter:
    """Return the trunk's token embeddings [V, H]. Call it inside forward only, where ZeRO-3 gathers them."""
    weight = trunk.get_input_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    return weight


def require_bidirectional(trunk: PreTrainedModel, instead: str = INSTEAD) -> None:
    """Refuse a causal trunk where a text is read from the state of [CLS]: it would be the same for every text.

    The message ends with what to do `instead`.
    """
    if is_causal(trunk):
        kind = f"model_type {trunk.config.model_type!r}"
        raise ValueError(f"the trunk ({kind}) is causal, so [CLS] sees no text: {instead}")


def make_bidirectional(trunk: PreTrainedModel) -> None:
    """Let a decoder's tokens attend to later ones too, by the mask that transformers makes of `is_causal` false."""
    kind = f"model_type {trunk.config.model_type!r}"
    if not is_causal(trunk):
        raise ValueError(f"the trunk ({kind}) is bidirectional already: leave it out")
    trunk.config.is_causal = False
    # a key that the type's code does not read changes nothing: look at the states again
    if is_causal_now(trunk):
        raise ValueError(f"transformers does not make the trunk ({kind}) bidirectional: leave it out")


def token_types(trunk: PreTrainedModel) -> int:
    """Return how many token types a trunk has an embedding for: BERT 2, RoBERTa 1, DistilBERT and ModernBERT 0."""
    table = getattr(getattr(trunk, "embeddings", None), "token_type_embeddings", None)
    return 0 if table is None else int(table.num_embeddings)


def widen_token_types(trunk: PreTrainedModel, number: int) -> None:
    """Widen the token-type table of a trunk that has one for pairs to `number` rows; new rows copy the last."""
    if not 2 <= token_types(trunk) < number:
        return
    table: Any = trunk.get_submodule("embeddings.token_type_embeddings")
    rows = table.weight.detach()  # a new parameter: one cannot grow in place
    table.weight = nn.Parameter(torch.cat([rows, rows[-1:].expand(number - len(rows), -1)]))
    trunk.config.type_vocab_size = table.num_embeddings = number


def encoders_of(model: TrunkModel) -> list[PreTrainedModel]:
    """Return a model's encoders: one, or one for queries and one for documents."""
    return [part for part in model.children() if isinstance(part, PreTrainedModel)]


def layers_of(encoder: PreTrainedModel) -> nn.ModuleList:
    """Return an encoder's layers, the lowest first: its only module list of the configured number of layers."""
    count = encoder.config.num_hidden_layers
    lists = {name: m for name, m in encoder.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count}
    # a layer may itself hold a list of as many modules
    outermost = [m for name, m in lists.items() if not any(name.startswith(f"{parent}.") for parent in lists)]
    if len(outermost) != 1:
        raise ValueError(
            f"the layers of model_type {encoder.config.model_type!r} are not found ({len(outermost)} lists of {count} "
            "modules, not one): set all"
        )
    return outermost[0]
