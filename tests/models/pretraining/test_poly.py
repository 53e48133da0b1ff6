import pytest
import torch

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.poly import PolyPretraining
from tests.models import plain
from tests.models.poly_pairs import KINDS, WINDOW, batcher, for_loss, rows_of
from tests.models.tiny import MAX_TOKENS, perturbed, rngs, tensors, trunk
from tests.models.trunks import trunk_like


def model(**config):
    return perturbed(PolyPretraining(trunk(**config)))


def both(window=WINDOW, kind="sentences", start=0):
    """Make a micro-batch of all groups of the window: rows for both losses, of several widths."""
    groups = batcher(kind).examples(window)
    return batcher(kind).micro_batch(groups, rngs(len(groups), start))


def bert_states(trunk, ids, types):
    """The last hidden states of an unpadded row, [T, H], by BERT's layers."""
    hidden = trunk.embeddings(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
    for layer in trunk.encoder.layer:
        output = layer(hidden)
        hidden = output[0] if isinstance(output, tuple) else output
    return hidden[0]


def states_without_types(trunk, ids, _):
    return trunk(torch.tensor([ids])).last_hidden_state[0]


def plain_losses(poly, batch, states=bert_states):
    """Both losses as in the paper, one unpadded row at a time."""
    embedding, arrays = poly.trunk.get_input_embeddings().weight, batch.arrays
    width = arrays["input_ids"].shape[1]
    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    losses = dict.fromkeys(["mlm", "next"], torch.zeros(()).double())
    for row, (ids, types) in enumerate(rows_of(batch)):
        hidden = states(poly.trunk, ids, types)
        true = arrays["next_targets"][row]
        if true == IGNORED:
            masked = [t for t in range(len(ids)) if targets.get(row * width + t, IGNORED) != IGNORED]
            words = [targets[row * width + t] for t in masked]
            losses["mlm"] = losses["mlm"] + plain.lm_loss(poly.lm_head, hidden[masked], embedding, words)
        else:
            score = hidden[0] @ poly.next_head.score.weight[0] + poly.next_head.score.bias[0]
            p = torch.sigmoid(score)
            losses["next"] = losses["next"] - torch.log(p if true else 1 - p)
    return losses


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_plain_reference_forward_and_backward(kind):
    poly, batch = model(), both(kind=kind)
    assert all(batch.counts.values())
    plain.same_losses_and_gradients(poly, batch, plain_losses(poly, batch))


@pytest.mark.parametrize("loss", ["mlm", "next"])
def test_a_batch_for_one_loss_still_reaches_every_weight(loss):
    """Under ZeRO-3, ranks with batches of either kind must gather the same weights in the same order."""
    poly, groups = model(), for_loss(loss, batcher().examples(WINDOW))
    losses = poly(**tensors(batcher().micro_batch(groups[:1], rngs(1))))
    assert losses[loss] > 0
    assert sum(losses.values()) == losses[loss]
    sum(losses.values()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in poly.parameters())
    heads = {name.split(".")[0] for name, p in poly.named_parameters() if p.grad.any()}
    assert heads == {"trunk", "lm_head" if loss == "mlm" else "next_head"}


@pytest.mark.parametrize("name", ["roberta", "distilbert", "modernbert"])
def test_trunks_without_token_types_read_the_pairs_without_them(name):
    one_type = {"type_vocab_size": 1, "max_position_embeddings": MAX_TOKENS + 1}
    encoder = trunk(model_type=name, **one_type) if name == "roberta" else trunk_like(name)
    poly, batch = perturbed(PolyPretraining(encoder)).eval(), both()
    theirs = plain_losses(poly, batch, states_without_types)
    for name, loss in poly(**tensors(batch)).items():
        torch.testing.assert_close(loss, theirs[name], rtol=1e-9, atol=0)
