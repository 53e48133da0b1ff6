import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.batching.packing import pad
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.retromae import RetroMae, RetroMaeBatcher, RetroMaeConfig, unpack_bits, visible_tokens
from tests.models import plain
from tests.models.tiny import MAX_TOKENS, VOCABULARY, blocks, documents, perturbed, rngs, tensors, trunk

SENTENCES = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 0, 2], rng=5)


def retromae(**config):
    return perturbed(RetroMae(trunk(**config)))


def batcher(max_tokens=MAX_TOKENS, packing="complete", encoder_mask=0.3, decoder_mask=0.5):
    return RetroMaeBatcher(
        RetroMaeConfig(
            name="retromae", max_tokens=max_tokens, blocks=packing, encoder_mask=encoder_mask, decoder_mask=decoder_mask
        ),
        VOCABULARY,
    )


def micro_batch(examples, start=0, **options):
    return batcher(**options).micro_batch(examples, rngs(len(examples), start))


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
    model, batch = retromae(), micro_batch(examples)
    ours, theirs = model(**tensors(batch)), plain_losses(model, batch, examples)
    assert ours.keys() == batch.counts.keys() == theirs.keys()
    for name, loss in ours.items():
        torch.testing.assert_close(loss, theirs[name], rtol=1e-10, atol=0)
    plain.same_gradients(model, sum(ours.values()), sum(theirs.values()))


def test_no_prediction_sees_its_own_token():
    """Another token at slot i of the decoder's input does not change the state that predicts slot i."""
    model, arrays = retromae(), tensors(micro_batch(EXAMPLES[:1], decoder_mask=0.0))
    embedding = model.trunk.get_input_embeddings().weight
    h_0, ids = torch.randn(1, 16, dtype=torch.float64), arrays["original_ids"]
    visible = unpack_bits(arrays["visible_bits"], ids.shape[1])
    with torch.no_grad():
        before = model.decoder(h_0, ids, visible, embedding)
        for i in range(1, len(EXAMPLES[0])):
            other = ids.clone()
            other[0, i] = 5 + (ids[0, i] - 4) % 35
            changed = (model.decoder(h_0, other, visible, embedding) != before).any(-1)[0]
            assert not changed[i]
            assert changed[[t for t in range(1, len(EXAMPLES[0])) if t != i]].all()  # at rate 0 all others see it


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


@given(SENTENCES, st.sampled_from(["complete", "complete_doc"]), st.integers(8, MAX_TOKENS))
def test_targets_and_visible_tokens_of_any_documents(lengths, packing, max_tokens):
    maker = batcher(max_tokens, packing)
    examples = maker.examples(documents(*lengths))
    if not examples:
        return
    arrays, counts, _ = maker.micro_batch(examples, rngs(len(examples)))
    real = arrays["decoder_targets"] != IGNORED
    positions = arrays["decoder_positions"][real]
    ids, mask = pad(examples, max_tokens, VOCABULARY.pad)
    width = ids.shape[1]
    assert counts["decoder"] == real.sum() == sum(len(x) - 1 for x in examples)
    assert sorted(positions.tolist()) == [p for p in np.flatnonzero(mask) if p % width]  # every token except [CLS]
    assert (ids.ravel()[positions] == arrays["decoder_targets"][real]).all()
    assert np.array_equal(arrays["original_ids"], ids)
    assert counts["mlm"] == (arrays["mlm_targets"] != IGNORED).sum()
    visible = unpack_bits(torch.from_numpy(arrays["visible_bits"]), width).numpy()
    assert visible[:, :, 0].all()
    assert not visible[:, :, 1:][~np.broadcast_to(mask[:, None, 1:], visible[:, :, 1:].shape)].any()


def test_masking_rates():
    long = [np.concatenate([[VOCABULARY.cls], np.arange(400) % 30 + 5, [VOCABULARY.sep]])] * 30
    arrays, counts, _ = micro_batch(long, max_tokens=402, encoder_mask=0.2)
    assert counts["mlm"] / (30 * 400) == pytest.approx(0.2, abs=0.003)
    seen = unpack_bits(torch.from_numpy(arrays["visible_bits"]), 402).double()
    assert seen.mean().item() == pytest.approx(0.5, abs=0.01)
