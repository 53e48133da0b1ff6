"""Cross-Thought: its examples, its equations, sequence by sequence, and what it keeps in memory."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import IGNORED
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.pretraining.cross_thought import CrossThought, CrossThoughtConfig
from deepsiam.models.trunk import max_positions
from tests.models import plain
from tests.models.tiny import CONFIG, MAX_TOKENS, VOCABULARY, documents, perturbed, rngs, tensors, trunk
from tests.models.trunks import trunk_like

SEQUENCES, WORDS, SPECIALS = 6, 7, 3
WIDTH = SPECIALS + WORDS
SIZES = st.lists(st.integers(1, SEQUENCES * WORDS), min_size=1, max_size=4)
DOCUMENTS = st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=5)
ROWS = VOCABULARY.vocab_size + SPECIALS - 1


def examples(*sizes, rng=0):
    """Draw an example for each number of words."""
    generator = np.random.default_rng(rng)
    return [generator.integers(5, VOCABULARY.vocab_size, size) for size in sizes]


def batcher(sequences=SEQUENCES, words=WORDS, specials=SPECIALS):
    keys = {"sequences": sequences, "sequence_tokens": words, "special_tokens": specials}
    return CrossThoughtConfig(name="cross_thought", **keys).batcher(VOCABULARY)


def batch(examples, start=0):
    return batcher().micro_batch(examples, rngs(len(examples), start))


def cross_thought(encoder=None, **config):
    """A `perturbed` model of a trunk."""
    keys = CrossThoughtConfig(name="cross_thought", special_tokens=SPECIALS)
    return perturbed(CrossThought(encoder or trunk(vocab_size=ROWS, **config), keys))


@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 6))
def test_examples_are_the_text_in_order(lengths, sequences, words):
    texts = documents(*lengths)
    maker = batcher(sequences, words, SPECIALS)
    blocks, origins = maker.examples(texts), maker.origins(texts)
    expected, numbers = [], []
    for number, document in enumerate(texts):
        tokens = [int(i) for sentence in document for i in sentence]
        expected += [*tokens, VOCABULARY.sep] if tokens else []
        numbers += [number] * (len(tokens) + 1) if tokens else []
    assert [i for ids in blocks for i in ids.tolist()] == expected
    size = sequences * words
    assert [len(ids) for ids in blocks] == [len(expected[i : i + size]) for i in range(0, len(expected), size)]
    assert origins == [sorted(set(numbers[i : i + size])) for i in range(0, len(numbers), size)]


@given(SIZES, st.integers(1, 8), st.integers(1, 9), st.integers(1, 5), st.integers(0, 99))
def test_arrays_are_special_tokens_followed_by_masked_words(sizes, sequences, words, specials, start):
    maker = batcher(sequences, words, specials)
    drawn = examples(*(min(size, sequences * words) for size in sizes))
    before = [ids.copy() for ids in drawn]
    arrays, counts, _ = maker.micro_batch(drawn, rngs(len(drawn), start))
    assert all(np.array_equal(a, b) for a, b in zip(drawn, before, strict=True))
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    assert ids.shape == mask.shape
    assert ids.shape[1] <= sequences
    assert ids.shape[2] == specials + words
    real = arrays["mlm_targets"] != IGNORED
    assert counts == {"mlm": real.sum()}
    assert (arrays["mlm_positions"][~real] == 0).all()
    restored = ids.copy()
    restored.reshape(-1)[arrays["mlm_positions"][real]] = arrays["mlm_targets"][real]
    for example, row, visible in zip(drawn, restored, mask, strict=True):
        used = -(-len(example) // words)
        assert (row[:used, :specials] == [VOCABULARY.cls, *range(40, 40 + specials - 1)]).all()
        assert visible[:used, :specials].all()
        assert row[:, specials:][visible[:, specials:]].tolist() == example.tolist()
        assert (row[~visible] == VOCABULARY.pad).all()
        assert visible[: used - 1].all()
        assert not visible[used:].any()
        assert not visible[used - 1, specials + (len(example) - 1) % words + 1 :].any()
    assert maker.micro_batch(drawn, rngs(len(drawn), start)).filled == mask.sum()


def test_shapes_depend_little_and_only_on_the_longest_example():
    maker = batcher(20, WORDS, SPECIALS)
    shapes = [
        {name: array.shape for name, array in maker.micro_batch(examples(*sizes), rngs(2)).arrays.items()}
        for sizes in ([70, 3], [100, 60], [112, 112])
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert shapes[0]["input_ids"] == (2, 16, WIDTH)


def inputs_of(arrays):
    return [arrays[name] for name in ("input_ids", "attention_mask", "offsets")]


def slow_loss(model, arrays):
    """Equations 1 to 9, sequence by sequence, without padding."""

    def layer_over_all(layer, x):
        return plain.transformer_layer(layer, x, x, [range(len(x))] * len(x))

    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    embedding = model.trunk.get_input_embeddings().weight
    loss = 0.0
    for b, (ids, mask, offset) in enumerate(
        zip(arrays["input_ids"], arrays["attention_mask"], arrays["offsets"].tolist(), strict=True)
    ):
        real = [m for m in range(len(ids)) if mask[m].any()]
        start = SPECIALS + (offset % (MAX_TOKENS - WIDTH + 1) if model.trains_every_position else 0)
        hidden = []
        for m in real:
            words = int(mask[m].sum()) - SPECIALS
            positions = torch.tensor([[*range(SPECIALS), *range(start, start + words)]])
            hidden.append(model.trunk(input_ids=ids[m][mask[m]][None], position_ids=positions).last_hidden_state[0])
        crossed = [layer_over_all(model.cross, torch.stack([h[n] for h in hidden])) for n in range(SPECIALS)]
        for m, h in enumerate(hidden):
            output = layer_over_all(model.final, torch.cat([torch.stack([c[m] for c in crossed]), h[SPECIALS:]]))
            output = model.lm_head.norm(F.gelu(model.lm_head.dense(output)))
            log_p = (output @ embedding.T + model.lm_head.bias).log_softmax(1)
            for t in range(len(h)):
                target = targets.get((b * len(ids) + real[m]) * WIDTH + t, IGNORED)
                loss = loss - (log_p[t, target] if target != IGNORED else 0.0)
    return loss


@pytest.mark.parametrize("sizes", [[42, 17, 8], [7], [1, 2, 30]])
def test_loss_and_gradients_are_those_of_the_equations(sizes):
    model, micro_batch = cross_thought(), batch(examples(*sizes, rng=1), start=3)
    assert micro_batch.counts["mlm"] > 0
    plain.same_losses_and_gradients(model, micro_batch, {"mlm": slow_loss(model, tensors(micro_batch))})


def test_every_offset_that_fits_is_drawn():
    offsets = [batch(examples(5), start=i).arrays["offsets"] for i in range(300)]
    positions = cross_thought().positions(torch.from_numpy(np.concatenate(offsets)), WIDTH)
    assert set(positions[:, SPECIALS].tolist()) == set(range(SPECIALS, MAX_TOKENS - WORDS + 1))


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_without_an_offset_the_trunk_called_the_usual_way_gives_the_same_states(model_type):
    model = cross_thought(model_type=model_type).eval()
    ids, mask, _ = inputs_of(tensors(batch(examples(30, 9))))
    hidden, real = model.encode(ids, mask, torch.zeros(2, dtype=torch.int64)), mask.any(2)
    usual = model.trunk(input_ids=ids[real], attention_mask=mask[real].long()).last_hidden_state
    torch.testing.assert_close(hidden[mask], usual[mask[real]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "electra"])
def test_words_move_along_the_positions_of_other_encoders_too(model_type):
    """RoBERTa's table has padding_idx + 1 rows that no token uses: its last row is the last position."""
    extra = {"embedding_size": 16} if model_type == "electra" else {}
    model = cross_thought(model_type=model_type, **extra)
    most = max_positions(model.trunk)
    assert most == MAX_TOKENS - (0 if model_type == "electra" else 1)
    positions = model.positions(torch.tensor([0, most - WIDTH]), WIDTH)
    assert positions[0, 0] == MAX_TOKENS - most
    assert positions[1, -1] == MAX_TOKENS - 1
    model(**tensors(batch(examples(42, 3))))["mlm"].backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_words_follow_the_special_tokens_where_positions_are_rotary():
    encoder = trunk_like("modernbert")
    encoder.resize_token_embeddings(ROWS, mean_resizing=False)
    model = cross_thought(encoder)
    assert not model.trains_every_position
    arrays = tensors(batch(examples(42, 3)))
    loss = model(**arrays)["mlm"]
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert torch.equal(loss, model(**{**arrays, "offsets": arrays["offsets"] + 1})["mlm"])
    assert loss.item() == pytest.approx(slow_loss(model, arrays).item(), rel=1e-9)


def test_padded_sequences_neither_attend_nor_are_attended_to():
    model, arrays = cross_thought(), tensors(batch(examples(20, 42, 1)))
    ids, mask, offsets = (array.clone() for array in inputs_of(arrays))
    ids[2], mask[2] = VOCABULARY.pad, False  # a whole example of padding
    real = mask.any(2)
    assert real.sum(1).tolist() == [3, 6, 0]
    alpha = model.attention(ids, mask, offsets)
    assert alpha.shape == (3, 2, SPECIALS, SEQUENCES, SEQUENCES)
    rows = real[:, None, None, :].expand(alpha.shape[:-1])
    torch.testing.assert_close(alpha.sum(-1), rows.double(), rtol=0, atol=1e-12)
    assert not alpha[~(rows[..., None] & rows[..., None, :])].any()
    assert not model.across(model.encode(ids, mask, offsets), mask)[~real].any()


def test_every_row_of_attention_sees_something(monkeypatch):
    """For a row that sees nothing, this processor's kernel returns zeros, other kernels NaN."""
    attend, all_see = F.scaled_dot_product_attention, []

    def checked(query, key, value, attn_mask, *args, **kwargs):
        all_see.append(attn_mask.any(-1).all().item())
        return attend(query, key, value, attn_mask, *args, **kwargs)

    model, arrays = cross_thought(), tensors(batch(examples(20, 42, 1)))
    monkeypatch.setattr(F, "scaled_dot_product_attention", checked)
    arrays["input_ids"][2], arrays["attention_mask"][2] = VOCABULARY.pad, False
    assert torch.isfinite(model(**arrays)["mlm"])
    assert len(all_see) == CONFIG["num_hidden_layers"] + 2
    assert all(all_see)


def test_the_returned_attention_is_that_of_the_cross_layer():
    model, arrays = cross_thought(), tensors(batch(examples(20, 42)))
    alpha = model.attention(*inputs_of(arrays))
    calls = []
    model.cross.attention.register_forward_hook(lambda module, args, output: calls.append((args[0], output)))
    model(**arrays)
    x, output = (y.view(2, SPECIALS, SEQUENCES, 16) for y in calls[0])
    value = model.cross.attention.key_value(x)[..., 16:].unflatten(-1, (2, 8))  # [B, N, M, heads, d]
    expected = model.cross.attention.out(torch.einsum("bhnqk,bnkhd->bnqhd", alpha, value).flatten(3))
    real = arrays["attention_mask"].any(2)[:, None].expand(output.shape[:3])
    torch.testing.assert_close(output[real], expected[real], rtol=0, atol=1e-12)


def test_sequences_longer_than_the_trunk_are_refused():
    maker = batcher(2, MAX_TOKENS, SPECIALS)
    micro_batch = maker.micro_batch(examples(30), rngs(1))
    with pytest.raises(ValueError, match=f"sequences of {MAX_TOKENS + 3} tokens.*the trunk's {MAX_TOKENS} positions"):
        cross_thought()(**tensors(micro_batch))


def saved_bytes(monkeypatch, checkpointing):
    """Count the bytes that autograd saves in a forward pass at BERT-base, 500 x 64 words in fp16.

    On the meta device nothing is computed; attention and dropout save what their fused CUDA kernels save.
    """

    class FusedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value):
            batch, heads, length, width = query.shape
            out = query.new_empty(batch, length, heads, width).transpose(1, 2)
            ctx.save_for_backward(query, key, value, out, out.new_empty(out.shape[:-1], dtype=torch.float32))
            return out

    config = {"model_type": "bert", "vocab_size": 32768 + 4, "max_position_embeddings": 569}
    with torch.device("meta"):
        model = CrossThought(build_trunk(config), CrossThoughtConfig(name="cross_thought")).half().train()
        if checkpointing:
            recompute_layers(model)
        arrays = {
            "input_ids": torch.empty(1, 500, 69, dtype=torch.int64),
            "attention_mask": torch.empty(1, 500, 69, dtype=torch.bool),
            "offsets": torch.empty(1, dtype=torch.int64),
            "mlm_positions": torch.empty(4801, dtype=torch.int64),
            "mlm_targets": torch.empty(4801, dtype=torch.int64),
        }
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # kept alive, so that no other storage gets its address
        return tensor

    def dropped(x, p, training, inplace=False):
        return torch.native_dropout(x, p, training)[0]

    with monkeypatch.context() as patched, saved_tensors_hooks(keep, lambda tensor: tensor):
        patched.setattr(F, "scaled_dot_product_attention", lambda q, k, v, *_, **__: FusedAttention.apply(q, k, v))
        patched.setattr(F, "dropout", dropped)
        model(**arrays)
    return sum(storage.nbytes() for address, storage in kept.items() if address not in parameters)


def test_activations_of_a_bert_base_sample_have_the_documented_size(monkeypatch):
    """docs/pretraining/cross_thought.md: 12 GB, or 1 GB with checkpointing."""
    assert saved_bytes(monkeypatch, False) == pytest.approx(12.0e9, rel=0.02)
    assert saved_bytes(monkeypatch, True) == pytest.approx(0.95e9, rel=0.05)
