import pytest
import torch

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.condenser import Condenser, CondenserConfig
from tests.models import plain
from tests.models.tiny import EXAMPLES, MAX_TOKENS, batch_of, blocks, perturbed, trunk


def condenser(config=None, early_layers=None, head_layers=2):
    keys = CondenserConfig(name="condenser", early_layers=early_layers, head_layers=head_layers)
    return perturbed(Condenser(trunk(**{"num_hidden_layers": 4, **(config or {})}), keys))


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


@pytest.mark.parametrize(
    ("examples", "options"),
    [
        (EXAMPLES, {}),
        (blocks([22]), {"early_layers": 1, "head_layers": 1}),
        (blocks([1]), {}),
        (EXAMPLES[:2], {"early_layers": 3, "head_layers": 3}),
    ],
)
def test_equals_a_plain_reference_forward_and_backward(examples, options):
    model, batch = condenser(**options), batch_of(CondenserConfig(name="condenser", max_tokens=MAX_TOKENS), examples)
    plain.same_losses_and_gradients(model, batch, plain_losses(model, batch, examples))


def test_without_early_layers_the_first_half_is_early():
    assert condenser().early_layers == 2
    assert condenser({"num_hidden_layers": 5}).early_layers == 2


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
