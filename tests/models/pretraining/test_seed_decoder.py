import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deepsiam.models.pretraining.seed import Seed, SeedConfig
from deepsiam.models.pretraining.seed_decoder import ClsAttention
from tests.models import plain
from tests.models.tiny import VOCABULARY, seed, trunk

VARIANTS = pytest.mark.parametrize("variant", ["paper", "released"])
LENGTH = 11


def inputs(batch=2, length=LENGTH):
    torch.manual_seed(1)
    cls = torch.randn(batch, 16, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(5, VOCABULARY.vocab_size, (batch, length))
    ids[:, 0] = VOCABULARY.cls
    return cls, ids


@VARIANTS
@pytest.mark.parametrize("reads_cls", [True, False])
@pytest.mark.parametrize(
    ("length", "window", "layers"),
    [
        *((LENGTH, window, 1) for window in (1, 2, 8, "all")),
        *((length, window, 2) for length, window in ((1, 2), (2, "all"), (4, 2), (4, 4))),
        *((LENGTH, window, layers) for window, layers in ((4, 3), ("all", 5))),
    ],
)
def test_equals_a_plain_reference_forward_and_backward(length, variant, window, layers, reads_cls):
    model = seed(variant=variant, window=window, decoder_layers=layers, cls=reads_cls)
    embedding = model.trunk.get_input_embeddings().weight
    cls, ids = inputs(length=length)
    if not reads_cls:
        cls = None
    ours = model.decoder(cls, ids, embedding)
    reference = plain.weak_decoder(model.decoder, variant, window, cls, ids, embedding)
    torch.testing.assert_close(ours, reference, rtol=0, atol=1e-10)
    grad = torch.randn_like(ours)
    leaves = [*([cls] if reads_cls else []), embedding, *model.decoder.parameters()]
    plain.same_gradients(leaves, (ours * grad).sum(), (reference * grad).sum())


def changed_slots(model, length):
    """Find for each input the slots whose state changes with it, bool [length, length]; the paper's input 0 is h_0."""
    embedding = model.trunk.get_input_embeddings().weight
    cls, ids = (x[:1].repeat(length, *[1] * (x.ndim - 1)) for x in inputs(length=length))
    other_cls, other_ids = cls.clone(), ids.clone()
    ordinary = ids.diagonal()
    other_ids.diagonal().copy_(5 + (ordinary - 4) % 35)  # row j has another ordinary token at j
    if model.cls and not model.decoder.released:
        other_cls[0] = cls[0].flip(0)  # the LayerNorm would remove an added constant
    if not model.cls:
        cls = other_cls = None
    with torch.no_grad():
        difference = model.decoder(other_cls, other_ids, embedding) - model.decoder(cls, ids, embedding)
    return difference.abs().amax(-1) > 1e-12


@VARIANTS
@pytest.mark.parametrize(("window", "layers"), [(1, 1), (2, 3), (4, 1), (4, 5), (8, 3), (8, 5), ("all", 1), ("all", 3)])
@pytest.mark.parametrize("reads_cls", [True, False])
def test_states_depend_exactly_on_the_stacked_window_and_slot_0(variant, layers, window, reads_cls):
    length = 40  # 5 layers of window 8 reach 35 back
    config = {"max_position_embeddings": length}
    model = seed(config, variant=variant, window=window, decoder_layers=layers, cls=reads_cls)
    reach = length if window == "all" else layers * (window - 1)
    j, t = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    assert torch.equal(changed_slots(model, length), (j == 0) | ((t - reach <= j) & (j <= t)))


def test_cross_attention_to_one_key_does_not_depend_on_the_query():
    """Ours equals full multi-head attention, whose query and key projections have no effect."""
    torch.manual_seed(0)
    ours = ClsAttention(trunk().config).double().eval()
    full = nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        full.in_proj_weight[32:] = ours.value.weight
        full.in_proj_bias[32:] = ours.value.bias
    full.out_proj.load_state_dict(ours.out.state_dict())
    cls, states = torch.randn(3, 1, 16, dtype=torch.float64), torch.randn(3, LENGTH, 16, dtype=torch.float64)
    reference = full(states, cls, cls, need_weights=False)[0]
    constant = ours(cls, LENGTH)
    assert constant.shape == (3, 1, 16)
    torch.testing.assert_close(constant.expand_as(reference), reference)
    reference.square().sum().backward()
    query_and_key, value = full.in_proj_weight.grad.split([32, 16])
    assert query_and_key.abs().max() < 1e-13 < 1e-3 < value.abs().max()


def test_dropout_hides_h_0_from_a_head_at_a_position():
    torch.manual_seed(0)
    layer = ClsAttention(trunk(attention_probs_dropout_prob=0.25).config).double().train()
    layer.out = nn.Identity()
    cls = torch.randn(4, 1, 16, dtype=torch.float64)
    seen = layer(cls, 500).unflatten(-1, (2, 8)) / layer.value(cls).unflatten(-1, (2, 8))  # [4, 500, heads, d]
    assert torch.allclose(seen, seen[..., :1])
    hidden = seen[..., 0] == 0
    assert hidden.double().mean().item() == pytest.approx(0.25, abs=0.03)
    torch.testing.assert_close(seen[..., 0][~hidden], torch.full_like(seen[..., 0][~hidden], 1 / 0.75))


@VARIANTS
@pytest.mark.parametrize("window", [2, "all"])
def test_dropout_comes_from_the_trunks_configuration(variant, window):
    cls, ids = inputs()

    def runs(**config):
        model = seed(config, variant=variant, window=window).train()
        embedding = model.trunk.get_input_embeddings().weight
        return [model.decoder(cls, ids, embedding) for _ in range(2)] + [model.eval().decoder(cls, ids, embedding)]

    without = runs()
    assert torch.equal(without[0], without[1])
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        first, second, evaluated = runs(**{name: 0.5})
        assert not torch.allclose(first, second)
        torch.testing.assert_close(evaluated, without[2])


@VARIANTS
def test_the_shape_is_the_trunks(variant):
    base = trunk(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    decoder = Seed(base, SeedConfig(name="seed", variant=variant)).decoder
    assert len(decoder.layers) == 3
    assert decoder.positions.weight.shape == base.embeddings.position_embeddings.weight.shape
    for layer in decoder.layers:
        assert layer.attention.heads == 4
        assert [m.out_features for m in layer.feed_forward if isinstance(m, nn.Linear)] == [96, 64]
    assert F.gelu(torch.ones(1)) == decoder.layers[0].feed_forward[1](torch.ones(1))
