"""The head of a ranker by labels: what it makes of states is what each type of causal language model does."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from deepsiam.models.layers.label_head import LabelHead, name_of_output

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30}
ROWS = [3, 7, 5]
NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
HEADS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 8, "num_key_value_heads": 1},
    "gemma2": {"head_dim": 8, "num_key_value_heads": 1, "final_logit_softcapping": 0.5},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.1},
    "phi": {},  # biases
    "opt": {"word_embed_proj_dim": 8, "ffn_dim": 16},  # states that are narrower than its layers
}


@pytest.mark.parametrize("kind", HEADS)
def test_logits_are_those_of_the_language_model(kind: str) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, **NO_IDS, **HEADS[kind])
    library = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    output = library.get_output_embeddings()
    head = LabelHead(config, len(ROWS)).double()
    own = dict(head.named_parameters())
    assert own.keys() == dict(output.named_parameters()).keys()
    ids = torch.tensor([[4, 9, 2, 8]])
    with torch.no_grad():
        for name, parameter in output.named_parameters():
            own[name].copy_(parameter.normal_()[ROWS])
        states = library.base_model(input_ids=ids).last_hidden_state[:, -1]
        expected = library(input_ids=ids).logits[:, -1, ROWS]
    logits = head.logits(states)
    torch.testing.assert_close(logits, expected)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(logits.square().sum(), list(own.values())))


def test_a_head_of_several_layers_leaves_a_plain_matrix() -> None:
    config = AutoConfig.for_model("bert", **SIZES, is_decoder=True)
    head = LabelHead(config, 2)
    states = torch.randn(3, 16)
    assert head.language_model is None
    torch.testing.assert_close(head.logits(states), states @ head.weight.T)
    assert name_of_output(AutoModelForCausalLM.from_config(config)) == "cls.predictions.decoder"
