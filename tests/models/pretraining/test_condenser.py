import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.condenser import Condenser, CondenserBatcher, CondenserConfig
from deepsiam.models.pretraining.mlm import MlmBatcher, MlmConfig
from tests.models import plain
from tests.models.checks import gradient_at_states
from tests.models.tiny import MAX_TOKENS, VOCABULARY, blocks, perturbed, rngs, tensors, trunk

SENTENCES = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 0, 2], rng=5)


def condenser(config=None, early_layers=None, head_layers=2):
    keys = CondenserConfig(name="condenser", early_layers=early_layers, head_layers=head_layers)
    return perturbed(Condenser(trunk(**{"num_hidden_layers": 4, **(config or {})}), keys))


def micro_batch(examples, start=0):
    return CondenserBatcher(CondenserConfig(name="condenser", max_tokens=MAX_TOKENS), VOCABULARY).micro_batch(
        examples, rngs(len(examples), start)
    )


def plain_losses(model, batch, examples):
    """Compute both losses as in the paper, one unpadded sequence at a time, without the model's functions."""
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


def test_without_early_layers_the_first_half_is_early():
    assert condenser().early_layers == 2
    assert condenser({"num_hidden_layers": 5}).early_layers == 2


def test_the_late_layers_reach_the_head_through_cls_only():
    model, arrays = condenser(), tensors(micro_batch(EXAMPLES))
    late = gradient_at_states(model, arrays, "head")
    real = arrays["mlm_targets"] != IGNORED
    with_targets = set((arrays["mlm_positions"][real] // late.shape[1]).tolist())
    assert len(with_targets) > 1
    assert {row for row in range(len(late)) if late[row, 0].any()} == with_targets
    assert not late[:, 1:].any()
    gradients = {name: p.grad for name, p in model.trunk.named_parameters()}
    assert gradients["encoder.layer.3.output.dense.weight"].any()  # late, through [CLS]
    assert gradients["encoder.layer.1.output.dense.weight"].any()  # early


def test_returning_a_layer_keeps_nothing_more_in_memory():
    """With and without the hidden states, the tensors saved for backward have the same number of elements."""
    base, arrays = trunk(num_hidden_layers=4).train(), tensors(micro_batch(EXAMPLES))

    def saved(run):
        tensors = {}
        record = torch.autograd.graph.saved_tensors_hooks(
            lambda x: tensors.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
        )
        with record:
            output = run()
        return tensors, getattr(output, "hidden_states", None) or ()

    inputs = {"input_ids": arrays["input_ids"], "attention_mask": arrays["attention_mask"][:, None, None]}
    without, _ = saved(lambda: base(**inputs))
    with_states, states = saved(lambda: base(**inputs, output_hidden_states=True))
    assert sum(x.numel() for x in with_states.values()) == sum(x.numel() for x in without.values())
    assert len(states) == 5
    assert {x.untyped_storage().data_ptr() for x in states[:-1]} <= with_states.keys()


@given(SENTENCES)
def test_the_arrays_are_mlms(lengths):
    examples = blocks(*lengths)
    if not examples:
        return
    ours = micro_batch(examples)
    theirs = MlmBatcher(MlmConfig(name="mlm", max_tokens=MAX_TOKENS), VOCABULARY).micro_batch(
        examples, rngs(len(examples))
    )
    assert ours.arrays.keys() == theirs.arrays.keys()
    assert all(np.array_equal(array, theirs.arrays[name]) for name, array in ours.arrays.items())
    real = int((ours.arrays["mlm_targets"] != IGNORED).sum())
    assert ours.counts == {"mlm": real, "head": real}


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({}, {"early_layers": 0}, "early_layers\n.*greater than 0"),
        ({}, {"early_layers": 4}, "early_layers must be at least 1 and below the trunk's 4 layers, not 4"),
        ({"num_hidden_layers": 1}, {}, "below the trunk's 1 layers, not 0"),
    ],
)
def test_unsuitable_layers_and_trunks_are_refused(config, options, message):
    with pytest.raises(ValueError, match=message):
        condenser(config, **options)
