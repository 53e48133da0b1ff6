"""The head of a causal language model for a few tokens: their rows, and whatever else the model does to its logits."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from deepsiam.models.layers.shape import setting


class LabelHead(nn.Linear):
    """Rows of a language model's head, one for each label, and their biases where its head has some.

    The scales and caps that the language model has, by whatever keys, are applied by its own code. Products are at
    least fp32, for in bf16 many logits would tie.

    Attributes:
        language_model: calls this layer with states [..., H] and makes logits of its products; None for a plain matrix.
    """

    language_model: PreTrainedModel | None

    def __init__(self, config: PreTrainedConfig, labels: int) -> None:
        """Draw the rows of `labels` labels at random, for the language model of a trunk's type."""
        model = language_model(config)
        output: Any = model.get_output_embeddings() if model else None
        width = output.in_features if output else config.hidden_size
        super().__init__(width, labels, bias=getattr(output, "bias", None) is not None)
        nn.init.normal_(self.weight, std=setting(config, "initializer_range", 0.02))
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if model:
            # Run the language model's own code on the trunk's states, so that whatever it does to logits (scales, caps)
            # happens here too: this layer is its output, and its trunk, which has no memory, passes the states on.
            model.set_submodule(name_of_output(model), self)
            for part in (model.base_model, model.get_decoder()):  # OPT calls the second itself
                part.forward = _pass_on
        self.__dict__["language_model"] = model  # not a submodule: its parameters have no values, and are never saved

    def forward(self, states: Tensor) -> Tensor:
        """Return the products with states [..., H], in their precision."""
        bias = None if self.bias is None else self.bias.to(states.dtype)
        return F.linear(states, self.weight.to(states.dtype), bias)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [N, L] of the labels after the trunk's last states [N, H]."""
        if self.language_model is None:
            return self(states)
        logits: Tensor = self.language_model(inputs_embeds=states[:, None]).logits
        return logits[:, -1]


def language_model(config: PreTrainedConfig) -> PreTrainedModel | None:
    """Return a causal language model of a trunk's type, without memory for its parameters.

    Returns:
        None where transformers has none, or one with parameters outside of the trunk and one output layer: BERT's head.
    """
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        return None
    config = copy.deepcopy(config)
    config._attn_implementation = "eager"  # a trunk in use may have one that its class does not know
    with torch.device("meta"):
        model: PreTrainedModel = model_class(config)
    parts = (f"{model.base_model_prefix}.", f"{name_of_output(model)}.")
    # a head with more than one layer, such as BERT's, would need weights that no trunk has
    extras = [name for name, _ in [*model.named_parameters(), *model.named_buffers()] if not name.startswith(parts)]
    return None if extras or model.base_model is model else model.eval()


def name_of_output(model: PreTrainedModel) -> str:
    """Return the name of a language model's output layer."""
    output = model.get_output_embeddings()
    return next(name for name, module in model.named_modules() if module is output)


class _Output(BaseModelOutputWithPast):
    """A trunk's output with the last states only: all else is None."""

    def __getattr__(self, name: str) -> None:
        return None


def _pass_on(*_: Any, inputs_embeds: Tensor, **__: Any) -> _Output:
    return _Output(last_hidden_state=inputs_embeds)
