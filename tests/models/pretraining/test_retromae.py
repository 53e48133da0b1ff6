import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.retromae import RetroMae, RetroMaeConfig, unpack_bits, visible_tokens
from tests.models import plain
from tests.models.tiny import (
    EXAMPLES,
    VOCABULARY,
    batch_of,
    blocks,
    perturbed,
    trunk,
)


def seen_slots(bits, length):
    """The slots that each slot of an example sees, as the batcher's docstring defines the bits."""
    return [[j for j in range(length) if bits[i][j // 8] >> (j % 8) & 1] for i in range(length)]


def plain_losses(model, batch, examples):
    """Both losses as in the paper, one sequence at a time, unpadded."""
    arrays, losses = batch.arrays, dict.fromkeys(["mlm", "decoder"], torch.zeros(()).double())
    embedding, decoder = model.trunk.get_input_embeddings().weight, model.decoder
    width = arrays["input_ids"].shape[1]
    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    for row, ids in enumerate(examples):
        n = len(ids)
        hidden = plain.backbone(model.trunk, arrays["input_ids"][row, :n])[-1]
        masked = [t for t in range(n) if targets.get(row * width + t, IGNORED) != IGNORED]
        losses["mlm"] = losses["mlm"] + plain.lm_loss(model.lm_head, hidden[masked], embedding, ids[masked])
        h_0, positions = hidden[0], decoder.positions.weight
        queries = torch.stack([h_0 + positions[t] for t in range(n)])
        context = torch.stack([h_0, *(decoder.norm(embedding[ids[t]] + positions[t]) for t in range(1, n))])
        seen = seen_slots(arrays["visible_bits"][row], n)
        states = plain.transformer_layer(decoder.layer, queries, context, seen)
        losses["decoder"] = losses["decoder"] + plain.lm_loss(model.lm_head, states[1:], embedding, ids[1:])
    return losses


@pytest.mark.parametrize("examples", [EXAMPLES, blocks([22]), blocks([1])])
def test_equals_a_plain_reference_forward_and_backward(examples):
    model, batch = perturbed(RetroMae(trunk())), batch_of(RetroMaeConfig(name="retromae", max_tokens=24), examples)
    plain.same_losses_and_gradients(model, batch, plain_losses(model, batch, examples))


def test_every_position_has_its_own_sample_of_the_right_size():
    rng = np.random.default_rng(0)
    samples = [visible_tokens(200, hidden, rng) for hidden in (0.5, 0.7, 0.0, 1.0)]
    for visible, hidden in zip(samples, (0.5, 0.7, 0.0, 1.0), strict=True):
        assert visible.dtype == bool
        assert visible[:, 0].all()
        assert not visible.diagonal()[1:].any()
        others = visible[:, 1:][~np.eye(200, dtype=bool)[:, 1:]]
        assert others.mean() == pytest.approx(1 - hidden, abs=0.01)
    assert len({row.tobytes() for row in samples[0]}) == 200  # drawn separately for each row
    agreement = (samples[0][1:100, 1:] == samples[0][101:, 1:]).mean()
    assert agreement == pytest.approx(0.5, abs=0.02)


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(0, 9))
def test_bits_are_unpacked_as_packed(length, seed, extra):
    visible = visible_tokens(length, 0.5, np.random.default_rng(seed))
    packed = np.packbits(visible, axis=1, bitorder="little")
    packed = np.pad(packed, ((0, 0), (0, extra)))
    unpacked = unpack_bits(torch.from_numpy(packed), length)
    assert unpacked.dtype == torch.bool
    assert np.array_equal(unpacked.numpy(), visible)


def test_masking_rates():
    long = [np.concatenate([[VOCABULARY.cls], np.arange(400) % 30 + 5, [VOCABULARY.sep]])] * 30
    arrays, counts, _ = batch_of(RetroMaeConfig(name="retromae", max_tokens=402, encoder_mask=0.2), long)
    assert counts["mlm"] / (30 * 400) == pytest.approx(0.2, abs=0.003)
    seen = unpack_bits(torch.from_numpy(arrays["visible_bits"]), 402).double()
    assert seen.mean().item() == pytest.approx(0.5, abs=0.01)
