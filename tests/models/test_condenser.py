import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.condenser import Condenser, CondenserBatcher
from models.encoder import build_trunk, encode, encode_with_layer
from models.losses import IGNORED
from models.mlm import Mlm, MlmBatcher
from models.task import Bottleneck
from tests.models import plain
from tests.models.checks import HALF_PRECISIONS, half_precision, training_lowers_every_loss
from tests.models.tiny import CONFIG, MAX_TOKENS, VOCABULARY, blocks, rngs, scattered, tensors, trunk

SENTENCES = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 0, 2], rng=5)
FAMILIES = {  # a trunk of each, four layers deep
    "bert": {},
    "roberta": {"max_position_embeddings": MAX_TOKENS + 1},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "distilbert": {"intermediate_size": None, "hidden_dim": 32, "dropout": 0.0, "attention_dropout": 0.0},
    "modernbert": {"hidden_activation": "gelu", "mlp_dropout": 0.0, "attention_dropout": 0.0},
}
OWN_NAMES = {  # what these call otherwise
    "distilbert": {"hidden_dropout_prob", "attention_probs_dropout_prob"},
    "modernbert": {"hidden_dropout_prob", "attention_probs_dropout_prob"},
}


def condenser(config=None, **options):
    return scattered(Condenser(trunk(**{"num_hidden_layers": 4, **(config or {})}), **options))


def family(model_type):
    torch.manual_seed(0)
    config = {**CONFIG, "num_hidden_layers": 4, "model_type": model_type, **FAMILIES[model_type]}
    dropped = OWN_NAMES.get(model_type, set())
    return build_trunk({key: v for key, v in config.items() if v is not None and key not in dropped}).double()


def micro_batch(examples, start=0):
    return CondenserBatcher(VOCABULARY, MAX_TOKENS).micro_batch(examples, rngs(len(examples), start))


def plain_losses(model, batch, examples):
    """Both losses by the paper's words, one sequence at a time, unpadded; no other function of the model's is used."""
    arrays, losses = batch.arrays, dict.fromkeys(["mlm", "head"], torch.zeros(()).double())
    embedding = model.trunk.get_input_embeddings().weight
    width = arrays["input_ids"].shape[1]
    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    for row, ids in enumerate(examples):
        n = len(ids)
        states = plain.backbone(model.trunk, arrays["input_ids"][row, :n])
        masked = [t for t in range(n) if targets.get(row * width + t, IGNORED) != IGNORED]
        x = torch.cat([states[-1][:1], states[model.early_layers][1:]])
        for layer in model.head:
            x = plain.transformer_layer(layer, x, x, [list(range(n))] * n)
        for name, hidden in (("mlm", states[-1]), ("head", x)):
            losses[name] = losses[name] + plain.lm_loss(model.lm_head, hidden[masked], embedding, ids[masked])
    return losses


@pytest.mark.parametrize("examples", [EXAMPLES, blocks([22]), blocks([1])])
@pytest.mark.parametrize("options", [{}, {"early_layers": 1, "head_layers": 1}, {"early_layers": 3, "head_layers": 3}])
def test_equals_a_plain_reference_forward_and_backward(examples, options):
    model, batch = condenser(**options), micro_batch(examples)
    ours, theirs = model(**tensors(batch)), plain_losses(model, batch, examples)
    assert ours.keys() == batch.counts.keys() == theirs.keys()
    for name, loss in ours.items():
        torch.testing.assert_close(loss, theirs[name], rtol=1e-10, atol=0)
    plain.same_gradients(model, sum(ours.values()), sum(theirs.values()))


def test_by_default_the_early_layers_are_the_first_half():
    assert condenser().early_layers == 2
    assert condenser({"num_hidden_layers": 5}).early_layers == 2
    assert len(condenser().head) == 2


def test_the_backbones_loss_is_that_of_mlm():
    model = condenser()
    other = Mlm(model.trunk)
    other.lm_head = model.lm_head
    arrays = tensors(micro_batch(EXAMPLES))
    assert model(**arrays)["mlm"].item() == other(**arrays)["mlm"].item()


def test_the_late_layers_reach_the_head_through_cls_only():
    model, arrays = condenser(), tensors(micro_batch(EXAMPLES))
    kept = {}

    def keep(module, args, output):
        output.last_hidden_state.retain_grad()
        kept["late"] = output.last_hidden_state

    handle = model.trunk.register_forward_hook(keep)
    model(**arrays)["head"].backward()
    handle.remove()
    late = kept["late"].grad
    real = arrays["mlm_targets"] != IGNORED
    with_targets = set((arrays["mlm_positions"][real] // late.shape[1]).tolist())
    assert len(with_targets) > 1
    assert {row for row in range(len(late)) if late[row, 0].any()} == with_targets
    assert not late[:, 1:].any()
    gradients = {name: p.grad for name, p in model.trunk.named_parameters()}
    assert gradients["encoder.layer.3.output.dense.weight"].any()  # late, by way of [CLS]
    assert gradients["encoder.layer.1.output.dense.weight"].any()  # early


def test_both_losses_share_one_projection():
    model = condenser()
    with_vocabulary = [key for key, value in model.state_dict().items() if VOCABULARY.vocab_size in value.shape]
    assert with_vocabulary == ["trunk.embeddings.word_embeddings.weight", "lm_head.bias"]
    assert {key.split(".")[0] for key in model.state_dict()} == {"trunk", "head", "lm_head"}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_of_trunks_shows_its_layers(model_type):
    base = family(model_type)
    model = scattered(Condenser(base, early_layers=3))
    arrays = tensors(micro_batch(EXAMPLES[:3]))
    early, late = encode_with_layer(base, arrays["input_ids"], arrays["attention_mask"], 3)
    assert torch.equal(late, encode(base, arrays["input_ids"], arrays["attention_mask"]))
    if model_type != "albert":  # its layers are one, run again and again
        with torch.no_grad():
            after_it = [p for name, p in base.named_parameters() if "layer.3." in name or "layers.3." in name]
            assert after_it
            for parameter in after_it:
                parameter.mul_(1.5)
        changed = encode_with_layer(base, arrays["input_ids"], arrays["attention_mask"], 3)
        assert torch.equal(changed[0], early)
        assert not torch.allclose(changed[1], late)
    losses = model(**arrays)
    apart = [model(**tensors(micro_batch([ids], start=i))) for i, ids in enumerate(EXAMPLES[:3])]
    for name, loss in losses.items():
        assert torch.isfinite(loss)
        torch.testing.assert_close(loss, sum(other[name] for other in apart), rtol=1e-10, atol=0)


def test_showing_a_layer_keeps_nothing_that_backward_does_not():
    """What is saved for backward, in elements, is the same with and without the hidden states."""
    base, arrays = trunk(num_hidden_layers=4).train(), tensors(micro_batch(EXAMPLES))

    def saved(run):
        held = {}
        keep = torch.autograd.graph.saved_tensors_hooks(
            lambda x: held.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
        )
        with keep:
            output = run()
        shown = getattr(output, "hidden_states", None) or ()
        return held, shown

    inputs = {"input_ids": arrays["input_ids"], "attention_mask": arrays["attention_mask"][:, None, None]}
    without, _ = saved(lambda: base(**inputs))
    held, shown = saved(lambda: base(**inputs, output_hidden_states=True))
    assert sum(x.numel() for x in held.values()) == sum(x.numel() for x in without.values())
    assert len(shown) == 5
    storages = {x.untyped_storage().data_ptr() for x in shown[:-1]}
    assert storages <= held.keys()


@settings(max_examples=20)
@given(SENTENCES)
def test_losses_are_the_sums_of_the_examples_losses(lengths):
    examples = blocks(*lengths)
    if not examples:
        return
    model = condenser()
    with torch.no_grad():
        together = model(**tensors(micro_batch(examples)))
        apart = [model(**tensors(micro_batch([ids], start=i))) for i, ids in enumerate(examples)]
    for name, loss in together.items():
        torch.testing.assert_close(loss, sum(losses[name] for losses in apart), rtol=1e-10, atol=1e-10)
        assert torch.isfinite(loss)


def test_more_padding_and_rows_of_nothing_but_padding_change_nothing():
    model, arrays = condenser(), tensors(micro_batch(EXAMPLES[1:]))
    width = arrays["input_ids"].shape[1]
    wider = dict(arrays)
    for name in ("input_ids", "attention_mask"):
        wider[name] = torch.nn.functional.pad(arrays[name], (0, MAX_TOKENS - width, 0, 1), value=VOCABULARY.pad)
    wider["mlm_positions"] = arrays["mlm_positions"] // width * MAX_TOKENS + arrays["mlm_positions"] % width
    before, after = model(**arrays), model(**wider)
    for name, loss in before.items():
        torch.testing.assert_close(after[name], loss, rtol=1e-12, atol=0)
    sum(after.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@given(SENTENCES)
def test_the_arrays_are_mlms(lengths):
    examples = blocks(*lengths)
    if not examples:
        return
    ours = micro_batch(examples)
    theirs = MlmBatcher(VOCABULARY, MAX_TOKENS).micro_batch(examples, rngs(len(examples)))
    assert ours.arrays.keys() == theirs.arrays.keys()
    assert all(np.array_equal(array, theirs.arrays[name]) for name, array in ours.arrays.items())
    real = int((ours.arrays["mlm_targets"] != IGNORED).sum())
    assert ours.counts == {"mlm": real, "head": real}


def test_swapping_gives_the_head_another_sequences_cls():
    model, batch = condenser(), micro_batch(EXAMPLES)
    assert isinstance(model, Bottleneck)
    arrays = tensors(batch)
    own, other = model(**arrays), model(**arrays, swap=True)
    assert other["mlm"].item() == own["mlm"].item()
    early, late = encode_with_layer(model.trunk, arrays["input_ids"], arrays["attention_mask"], model.early_layers)
    embedding = model.trunk.get_input_embeddings().weight
    width, expected = late.shape[1], torch.zeros(()).double()
    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    for row, ids in enumerate(EXAMPLES):
        n = len(ids)
        x = torch.cat([late[(row + 2) % 4, :1], early[row, 1:n]])
        for layer in model.head:
            x = plain.transformer_layer(layer, x, x, [list(range(n))] * n)
        masked = [t for t in range(n) if targets.get(row * width + t, IGNORED) != IGNORED]
        expected = expected + plain.lm_loss(model.lm_head, x[masked], embedding, ids[masked])
    torch.testing.assert_close(other["head"], expected, rtol=1e-10, atol=0)
    assert other["head"].item() != own["head"].item()


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({}, {"early_layers": 0}, "early_layers must be at least 1 and below the trunk's 4 layers, not 0"),
        ({}, {"early_layers": 4}, "not 4"),
        ({"num_hidden_layers": 1}, {}, "below the trunk's 1 layers, not 0"),
        ({}, {"head_layers": 0}, "head_layers must be at least 1, not 0"),
        ({"is_decoder": True}, {}, "causal"),
        ({"model_type": "electra", "embedding_size": 8}, {}, "its width 8 must be hidden_size 16"),
    ],
)
def test_what_will_not_do_is_refused(config, options, message):
    with pytest.raises(ValueError, match=message):
        condenser(config, **options)


def test_initialisation_is_the_trunks():
    head = Condenser(trunk(hidden_size=64, num_attention_heads=4, initializer_range=0.02)).head
    for name, parameter in head.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name


@HALF_PRECISIONS
def test_half_precision_losses_are_fp32_and_near_the_exact_ones(dtype):
    half_precision(Condenser(trunk(initializer_range=0.02)).double(), tensors(micro_batch(EXAMPLES)), dtype)


def test_training_lowers_both_losses():
    training_lowers_every_loss(
        Condenser(trunk(initializer_range=0.02)).double(), tensors(micro_batch(blocks([20], [20], [20], [20])))
    )
