"""Compiled and recomputed layers: the same states and gradients, and the same names of parameters."""

from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.autograd.graph import saved_tensors_hooks

from deepsiam.models.encode import encode
from deepsiam.models.layer_modes import compile_layers, recompute_layers
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.trunk import layers_of
from tests import toy
from tests.models.test_freeze import KINDS, Model, trunk_of

BACKEND = "inductor" if toy.FULL_TESTS else "eager"  # all stages, or the first one


def run(model: Model, lengths: tuple[int, ...] = (10, 6)) -> tuple[torch.Tensor, dict[str, torch.Tensor | None], int]:
    """The states of texts, the gradients of their squares, and the numbers that the forward pass keeps."""
    ids = torch.arange(1, 1 + sum(2 * [max(lengths)])).view(2, -1)
    mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.numel()
        return tensor

    model.zero_grad()
    torch.manual_seed(4)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        states = encode(model.trunk, ids, mask)[mask]
    states.square().sum().backward()
    return states, {name: parameter.grad for name, parameter in model.named_parameters()}, sum(kept.values())


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_gradients_are_the_same_with_the_same_dropout(kind: str) -> None:
    results = []
    for recomputed in (False, True):
        torch.manual_seed(1)
        model = Model(trunk_of(kind)).train()
        names = dict(model.named_parameters()).keys()
        if recomputed:
            recompute_layers(model)
        results.append(run(model))
        assert dict(model.named_parameters()).keys() == names
    (states, gradients, kept), (again, same, fewer) = results
    assert torch.equal(states, again)
    torch.testing.assert_close(same, gradients, rtol=0, atol=0)
    assert fewer < 0.6 * kept


def test_compiled_layers_are_one_program_of_the_same_states_and_gradients_also_recomputed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=BACKEND))
    plain, compiled = (Model(trunk_of("bert")).double().eval() for _ in range(2))
    compiled.load_state_dict(plain.state_dict())
    torch.compiler.reset()
    counters.clear()
    compile_layers(compiled)
    for lengths in ((10, 6), (20, 17)):
        (states, gradients, _), (again, same, _) = run(plain, lengths), run(compiled, lengths)
        torch.testing.assert_close(again, states, rtol=0, atol=1e-12)
        torch.testing.assert_close(same, gradients, rtol=0, atol=1e-9)
    assert all("forward" in vars(layer) for layer in layers_of(compiled.trunk))
    assert counters["stats"]["unique_graphs"] == 1  # of all layers and lengths
    for model in (plain, compiled):
        recompute_layers(model)
    (states, gradients, kept), (again, same, as_few) = run(plain), run(compiled)
    torch.testing.assert_close(again, states, rtol=0, atol=1e-12)
    torch.testing.assert_close(same, gradients, rtol=0, atol=1e-9)
    assert as_few == kept


def test_layers_that_are_not_found_are_refused() -> None:
    with pytest.raises(ValueError, match="the layers of model_type 'albert' are not found"):
        compile_layers(Model(trunk_of("albert")))


def test_heads_and_both_towers_are_recomputed_once() -> None:
    model = Model(trunk_of("bert"), towers=2)
    shape = shape_of(model.trunk)
    model.decoder = nn.ModuleList(TransformerLayer(shape) for _ in range(2))
    model.cross = TransformerLayer(shape)
    recompute_layers(model)
    changed = {name for name, module in model.named_modules() if "forward" in vars(module)}
    layers = {f"{trunk}.encoder.layer.{i}" for trunk in ("trunk", "document_trunk") for i in range(3)}
    assert changed == layers | {"decoder.0", "decoder.1", "cross"}
