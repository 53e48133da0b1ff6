"""Compiled layers: the same losses and gradients, for any length, and the same names of parameters."""

import shutil

import numpy as np
import pytest
import torch

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.encode import encode_texts
from deepsiam.models.layer_modes import compile_layers
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.models.trunk import layers_of
from tests.models import tiny

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs a C++ compiler on a CPU"
)


def model(**config: object) -> Mlm:
    torch.manual_seed(0)
    return Mlm(build_trunk({**tiny.CONFIG, **config})).double()


def states(of: Mlm, lengths: list[int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the states of texts of these lengths, and the gradients of the sum of their squares."""
    rng, width = np.random.default_rng(1), max(lengths)
    ids = torch.from_numpy(rng.integers(5, tiny.VOCABULARY.vocab_size, (len(lengths), width)))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    hidden = encode_texts(of.trunk, ids, mask) * mask[:, :, None]
    of.zero_grad()
    hidden.square().sum().backward()
    return hidden.detach(), {name: p.grad for name, p in of.named_parameters() if p.grad is not None}


@needs_compiler
@pytest.mark.slow
def test_compiled_layers_give_the_same_states_and_gradients() -> None:
    plain, compiled = model(), model()
    names = list(dict(compiled.named_parameters()))
    compile_layers(compiled)
    assert list(dict(compiled.named_parameters())) == names
    for lengths in ([12, 12, 9], [20, 17]):
        expected, found = states(plain, lengths), states(compiled, lengths)
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-12)
        assert found[1].keys() == expected[1].keys()
        for name, gradient in expected[1].items():
            torch.testing.assert_close(found[1][name], gradient, rtol=0, atol=1e-10, msg=name)
    assert all("forward" in vars(layer) for layer in layers_of(compiled.trunk))


def test_layers_that_are_not_found_are_refused() -> None:
    with pytest.raises(ValueError, match="the layers of model_type 'albert' are not found"):
        compile_layers(model(model_type="albert", embedding_size=tiny.CONFIG["hidden_size"]))
