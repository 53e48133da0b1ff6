"""Adapters beside an encoder's frozen layers."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModel

from deepsiam.models.adapters import Lora, add_adapters, choose_targets
from tests.models.test_freeze import Model, trained, trunk_of

peft = pytest.importorskip("peft")  # an extra

TARGETS = {  # peft's own, or all linear layers of a type that it does not know
    "bert": ["query", "value"],
    "roberta": ["query", "value"],
    "distilbert": ["k_lin", "lin1", "lin2", "out_lin", "q_lin", "v_lin"],
    "modernbert": ["Wi", "Wo", "Wqkv"],
    "gpt2": ["c_attn"],
    "qwen3": ["q_proj", "v_proj"],
}


def adapted(model: Model, **keys: Any) -> list[Any]:
    return add_adapters(model, choose_targets(model.trunk, Lora(rank=4, **keys)))


def random_adapters(model: nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "lora_" in name:
                parameter.normal_(0, 0.1)


@pytest.mark.parametrize("kind", TARGETS)
def test_the_states_and_gradients_are_those_of_pefts_own_model(kind: str) -> None:
    trunk = trunk_of(kind).eval()
    stock = AutoModel.from_config(copy.deepcopy(trunk.config)).eval()
    stock.load_state_dict(trunk.state_dict(), strict=False)
    chosen = choose_targets(trunk, Lora(rank=4))
    assert chosen.targets == TARGETS[kind]
    theirs = peft.get_peft_model(stock, peft.LoraConfig(r=4, lora_alpha=32, target_modules=chosen.targets)).eval()
    model = Model(trunk, head=False)
    (wrapper,) = add_adapters(model, chosen)
    model.eval()
    names = {name.removeprefix("trunk."): p for name, p in model.named_parameters() if p.requires_grad}
    assert names.keys() == {
        name.removeprefix("base_model.model.") for name, p in theirs.named_parameters() if p.requires_grad
    }
    random_adapters(model)
    random_adapters(theirs)
    ids = torch.arange(1, 13).view(2, 6)
    states, expected = (m(input_ids=ids).last_hidden_state for m in (model.trunk, theirs))
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-6)
    states.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in theirs.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(names[name.removeprefix("base_model.model.")].grad, parameter.grad)
    plain = {name for name, _ in stock.named_parameters() if "lora_" not in name}
    wrapper.merge_and_unload()
    merged = model.trunk(input_ids=ids).last_hidden_state
    torch.testing.assert_close(merged, expected, rtol=0, atol=1e-5)
    assert {name.replace(".base_layer", "") for name in plain} >= dict(model.trunk.named_parameters()).keys()


def test_only_adapters_and_heads_are_trained_and_the_rest_is_the_bases() -> None:
    model = Model(trunk_of("bert"))
    before = len(dict(model.named_parameters()))
    adapted(model, targets=["dense", "attention.self.key"])
    of = ("attention.self.key", "attention.output.dense", "intermediate.dense", "output.dense")
    lora = {f"trunk.encoder.layer.{i}.{name}.lora_{x}.default.weight" for i in range(3) for name in of for x in "AB"}
    assert trained(model) == lora | {"head.weight", "head.bias"}
    names = dict(model.named_parameters()).keys()
    assert model.from_base == names - trained(model)
    assert len(model.from_base) == before - 2


def test_a_table_with_new_tokens_is_not_of_the_base() -> None:
    model = Model(trunk_of("bert"))
    add_adapters(model, choose_targets(model.trunk, Lora()), new_tokens=True)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen - model.from_base == {"trunk.embeddings.word_embeddings.weight"}


def test_both_towers_have_adapters_and_the_second_is_of_the_base_where_it_equals_the_first() -> None:
    model = Model(trunk_of("bert"), towers=2)
    model.document_trunk.load_state_dict(model.trunk.state_dict())
    with torch.no_grad():
        model.document_trunk.embeddings.LayerNorm.bias[0] = 1.0
    adapted(model)
    own = {name for name in trained(model) if name.startswith("document_trunk.")}
    assert own == {name.replace("trunk.", "document_trunk.", 1) for name in trained(model) if name.startswith("trunk.")}
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen - model.from_base == {"document_trunk.embeddings.LayerNorm.bias"}


@pytest.mark.parametrize("target", ["querry", "uery", "LayerNorm", "encoder", "embeddings.word_embeddings"])
def test_a_target_that_is_no_linear_layer_is_refused(target: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^lora.targets: '{target}' is no linear layer of a bert: choose from dense, "
    ):
        choose_targets(trunk_of("bert"), Lora(targets=["query", target]))


def test_a_method_that_freezes_the_encoder_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="the method does not train 'query' of the encoder"):
        choose_targets(trunk_of("bert").requires_grad_(False), Lora())
