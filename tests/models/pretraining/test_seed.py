"""SEED: its decoder against a plain reference in fp64, and which weights its losses reach."""

import pytest
import torch
from torch import nn

from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.models.pretraining.seed import Seed, SeedConfig
from deepsiam.models.pretraining.seed_decoder import ClsAttention
from tests.models import plain
from tests.models.tiny import EXAMPLES, MAX_TOKENS, VOCABULARY, Text, batch_of, perturbed, tensors, trunk

VARIANTS = pytest.mark.parametrize("variant", ["paper", "released"])
LENGTH, LONG = 11, 40
WORDS = "trunk.embeddings.word_embeddings.weight"


def seed(trunk_keys=None, **keys):
    """A `perturbed` model; by default with the paper's decoder."""
    return perturbed(Seed(trunk(**(trunk_keys or {})), SeedConfig(name="seed", **keys)))


def seed_batch(mlm=True):
    return batch_of(SeedConfig(name="seed", max_tokens=MAX_TOKENS, loss_weights={"mlm": float(mlm)}), EXAMPLES)


def inputs(batch=2, length=LENGTH):
    torch.manual_seed(1)
    cls = torch.randn(batch, 16, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(5, VOCABULARY.vocab_size, (batch, length))
    ids[:, 0] = VOCABULARY.cls
    return cls, ids


@VARIANTS
@pytest.mark.parametrize(
    ("length", "window", "layers", "reads_cls"),
    [
        *((LENGTH, window, 1, True) for window in (1, 2, 8, "all")),
        *((length, window, 2, True) for length, window in ((1, 2), (2, "all"), (4, 2), (4, 4))),
        *((LENGTH, window, layers, False) for window, layers in ((1, 1), (2, 2), (4, 3), ("all", 1))),
        (LENGTH, "all", 5, True),
        (LONG, 8, 3, True),
    ],
)
def test_the_decoder_equals_a_plain_reference_forward_and_backward(length, variant, window, layers, reads_cls):
    keys = {"variant": variant, "window": window, "decoder_layers": layers, "cls": reads_cls}
    model = seed({"max_position_embeddings": LONG}, **keys)
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
def test_the_shape_of_the_decoder_is_the_trunks(variant):
    base = trunk(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    decoder = Seed(base, SeedConfig(name="seed", variant=variant)).decoder
    assert len(decoder.layers) == 3
    assert decoder.positions.weight.shape == base.embeddings.position_embeddings.weight.shape
    for layer in decoder.layers:
        assert layer.attention.heads == 4
        assert [m.out_features for m in layer.feed_forward if isinstance(m, nn.Linear)] == [96, 64]


def decoder_loss(model, arrays, h_0):
    """-log P(x_t | the unmasked tokens before t, h_0 of the masked input), summed over all tokens except [CLS]."""
    embedding = model.trunk.get_input_embeddings().weight
    log_p = (model.decoder(h_0, arrays["original_ids"], embedding) @ embedding.T).log_softmax(-1).flatten(0, 1)
    real = arrays["decoder_targets"] != IGNORED
    return -log_p[arrays["decoder_positions"][real], arrays["decoder_targets"][real]].sum()


@VARIANTS
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_decoder_loss_is_equation_10(variant, pooling):
    model, batch = seed(variant=variant, loss_weights={"mlm": 0}, pooling=pooling), seed_batch(mlm=False)
    arrays = tensors(batch)
    assert (arrays["input_ids"] != arrays["original_ids"]).any()
    masked = {"text_ids": arrays["input_ids"], "text_mask": arrays["attention_mask"]}
    states = plain.states_alone(model.trunk, masked, "text")
    h_0 = torch.stack([state[0] if pooling == "cls" else state.mean(0) for state in states])
    plain.same_losses_and_gradients(model, batch, {"decoder": decoder_loss(model, arrays, h_0)})


def test_targets_are_the_next_tokens_even_with_repeated_separators():
    sep = VOCABULARY.sep
    config = SeedConfig(name="seed", max_tokens=MAX_TOKENS, blocks="complete_doc")
    (example,) = config.batcher(VOCABULARY).examples([Text([[7, sep, sep], [sep]])])
    assert example.tolist() == [VOCABULARY.cls, 7, sep, sep, sep, sep, sep]
    arrays, counts, _ = batch_of(config, [example])
    assert counts["decoder"] == 6
    assert arrays["decoder_positions"][:6].tolist() == [*range(6)]
    assert arrays["decoder_targets"][:7].tolist() == [7, sep, sep, sep, sep, sep, IGNORED]


def trained(model, arrays):
    """The names of the parameters that one step of Adam on all losses changes."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    sum(model(**arrays).values()).backward()
    optimizer.step()
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


def learning(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


def of_decoder(model):
    return {name for name, _ in model.named_parameters() if name.startswith("decoder.")}


@VARIANTS
@pytest.mark.parametrize("window", [2, "all"])
def test_with_a_frozen_encoder_only_the_decoder_learns(variant, window):
    free = seed(variant=variant, window=window)
    model = seed(variant=variant, window=window, freeze_encoder=True)
    model.load_state_dict({k: v for k, v in free.state_dict().items() if not k.startswith("lm_head.")})
    arrays = tensors(seed_batch(mlm=False))
    keys = SeedConfig(name="seed", freeze_encoder=True)
    assert keys.needs_trained_encoder
    assert model(**arrays).keys() == keys.weights.keys() == {"decoder"}
    assert model(**arrays)["decoder"].item() == free(**tensors(seed_batch()))["decoder"].item()
    assert learning(model) == trained(model, arrays) == of_decoder(model)
    assert all(p.grad is None for p in model.trunk.parameters())


def test_a_frozen_encoder_runs_without_dropout_and_the_decoder_with_it():
    config = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    model, arrays = seed(config, freeze_encoder=True), tensors(seed_batch(mlm=False))
    for _ in range(2):  # as built, and again after an evaluation
        h_0 = [encode(model.trunk, arrays["input_ids"], arrays["attention_mask"]) for _ in range(2)]
        assert torch.equal(*h_0)
        assert model(**arrays)["decoder"].item() != model(**arrays)["decoder"].item()
        assert model.decoder.training
        model.eval()
        assert model(**arrays)["decoder"].item() == model(**arrays)["decoder"].item()
        assert model.train() is model


@VARIANTS
def test_without_cls_the_decoder_reads_nothing_from_the_encoder(variant):
    model, arrays = seed(variant=variant, cls=False), tensors(seed_batch())
    losses = model(**arrays)
    torch.testing.assert_close(losses["decoder"], decoder_loss(model, arrays, None), rtol=1e-10, atol=0)
    mlm = Mlm(model.trunk)
    mlm.lm_head = model.lm_head
    read = ("input_ids", "attention_mask", "mlm_positions", "mlm_targets")
    assert losses["mlm"].item() == mlm(**{name: arrays[name] for name in read})["mlm"].item()
    losses["decoder"].backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched - of_decoder(model) == {WORDS}
    assert not [name for name, _ in model.named_parameters() if "cross_attention" in name]
    assert model(**arrays, swap=True)["decoder"].item() == losses["decoder"].item()


@VARIANTS
@pytest.mark.parametrize("freeze", [False, True])
def test_with_neither_cls_nor_mlm_no_encoder_runs(variant, freeze):
    model = seed(variant=variant, cls=False, freeze_encoder=freeze, loss_weights={"mlm": 0})
    arrays, runs = tensors(seed_batch(mlm=False)), []
    model.trunk.register_forward_hook(lambda *args: runs.append(args))
    loss = model(**arrays)["decoder"]
    torch.testing.assert_close(loss, decoder_loss(model, arrays, None), rtol=1e-10, atol=0)
    assert learning(model) == trained(model, arrays) == of_decoder(model) | (set() if freeze else {WORDS})
    assert not runs
