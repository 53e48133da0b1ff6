"""Which parameters of an encoder are trained."""

from typing import Any

import pytest
from torch import nn
from transformers import PreTrainedModel

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.freeze import embeddings_of, freeze
from deepsiam.models.trunk import TrunkModel, layers_of
from tests import toy

SHAPE = {k: v for k, v in toy.TRUNK.items() if k not in ("model_type", "intermediate_size")} | {"num_hidden_layers": 3}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"intermediate_size": 64},
    "roberta": {"intermediate_size": 64},
    "distilbert": {"hidden_dim": 64},
    "albert": {"intermediate_size": 64, "embedding_size": 16},
    "mpnet": {"intermediate_size": 64},
    "deberta-v2": {"intermediate_size": 64},
    "modernbert": {"intermediate_size": 64, "num_hidden_layers": 3},
    "gpt2": {},
    "qwen3": {"num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64},
}
LAYERS = {
    "bert": "encoder.layer",
    "roberta": "encoder.layer",
    "distilbert": "transformer.layer",
    "modernbert": "layers",
}


def trunk_of(kind: str, **changes: Any) -> PreTrainedModel:
    return build_trunk(
        {**SHAPE, **KINDS.get(kind, {}), "model_type": kind, "vocab_size": 50, "pad_token_id": 0, **changes}
    )


class Model(TrunkModel):
    """A trunk, with an optional trunk for documents and an optional head."""

    def __init__(self, trunk: PreTrainedModel, *, towers: int = 1, head: bool = True) -> None:
        super().__init__()
        self.trunk = trunk
        if towers == 2:
            self.document_trunk = trunk_of(trunk.config.model_type)
        if head:
            self.head = nn.Linear(32, 4)


def trained(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_embeddings_or_all_but_the_top_layers_are_frozen(kind: str) -> None:
    names = trained(Model(trunk_of(kind)))
    head = {"head.weight", "head.bias"}
    layers = [{name for name in names if name.startswith(f"trunk.{LAYERS[kind]}.{i}.")} for i in range(3)]
    assert all(len(layer) >= 4 for layer in layers)
    expected = {
        "all": names,
        "all_but_embeddings": {name for name in names if not name.startswith("trunk.embeddings.")},
        3: head.union(*layers),
        2: head.union(*layers[1:]),
        1: head | layers[2],
        0: head,
    }
    for choice, remaining in expected.items():
        model = Model(trunk_of(kind))
        freeze(model, choice)  # type: ignore[arg-type]
        assert trained(model) == remaining


def test_both_towers_are_frozen() -> None:
    model = Model(trunk_of("bert"), towers=2)
    freeze(model, 1)
    towers = {name.split(".encoder.layer.")[0] for name in trained(model) if ".layer.2." in name}
    assert towers == {"trunk", "document_trunk"}
    assert {name.split(".")[0] for name in trained(model) if ".layer.2." not in name} == {"head"}


def test_what_a_method_has_frozen_stays_frozen() -> None:
    model = Model(trunk_of("bert"))
    model.trunk.requires_grad_(False)
    freeze(model, 2)
    assert trained(model) == {"head.weight", "head.bias"}


def test_as_many_modules_in_another_list_inside_the_layers_do_no_harm() -> None:
    trunk = trunk_of("bert", num_hidden_layers=2)
    trunk.encoder.layer[0].experts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert layers_of(trunk) is trunk.encoder.layer
    trunk.others = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="the layers of model_type 'bert' are not found .2 lists of 2 modules"):
        layers_of(trunk)


def test_what_cannot_be_frozen_is_refused() -> None:
    for kind, head, layers, message in (
        ("bert", True, 4, "4 layers, but the encoder has 3: set 3 or less"),
        ("albert", True, 1, "the layers of model_type 'albert' are not found .0 lists of 3 modules"),
        ("bert", False, 0, "0 trains nothing: .* set 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            freeze(Model(trunk_of(kind), head=head), layers)
    trunk = trunk_of("bert")
    del trunk.embeddings
    with pytest.raises(ValueError, match="model_type 'bert' has no `embeddings`"):
        embeddings_of(trunk)
