"""Language models, masked and causal, and the decoders of Condenser and RetroMAE: losses against plain references."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertForMaskedLM

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.clm import Clm, ClmConfig
from deepsiam.models.pretraining.condenser import Condenser, CondenserConfig
from deepsiam.models.pretraining.mlm import Mlm, MlmBatcher, MlmConfig
from deepsiam.models.pretraining.retromae import RetroMaeConfig, unpack_bits, visible_tokens
from tests.models import plain
from tests.models.tiny import (
    EXAMPLES,
    MAX_TOKENS,
    VOCABULARY,
    batch_of,
    blocks,
    documents,
    perturbed,
    rngs,
    tensors,
    trunk,
)

MLM = MlmConfig(name="mlm", max_tokens=MAX_TOKENS)


def test_the_loss_is_that_of_hugging_face_bert():
    model = Mlm(trunk()).double()
    torch.nn.init.normal_(model.lm_head.bias)
    reference = BertForMaskedLM(model.trunk.config).double().eval()
    reference.bert.load_state_dict(model.trunk.state_dict())
    head = reference.cls.predictions
    head.transform.dense.load_state_dict(model.lm_head.dense.state_dict())
    head.transform.LayerNorm.load_state_dict(model.lm_head.norm.state_dict())
    with torch.no_grad():
        head.decoder.bias.copy_(model.lm_head.bias)
    batch = batch_of(MLM, blocks([20], [5, 3], [1], rng=3))
    arrays, targets = tensors(batch), torch.from_numpy(batch.arrays["mlm_targets"])
    logits = reference(input_ids=arrays["input_ids"], attention_mask=arrays["attention_mask"]).logits
    rows = logits.flatten(0, 1)[arrays["mlm_positions"]]
    expected = F.cross_entropy(rows, targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(model(**arrays)["mlm"], expected, rtol=1e-10, atol=0)
    assert batch.counts == {"mlm": int((targets != IGNORED).sum())}
    assert batch.counts["mlm"] > 0


def test_shapes_depend_only_on_batch_and_width():
    shapes = [
        {name: array.shape for name, array in batch_of(MLM, blocks(*lengths)).arrays.items()}
        for lengths in ([[14], [14]], [[9], [1]], [[10], [14]])
    ]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("packing", ["complete", "complete_doc"])
def test_a_micro_batch_is_not_from_one_long_document(packing):
    """In the order of the text, 16 consecutive blocks would be from one or two of these books."""
    batcher = MlmConfig(name="mlm", max_tokens=MAX_TOKENS, blocks=packing).batcher(VOCABULARY)
    books = documents(*[[9] * 80] * 10)
    origins = batcher.origins(books)
    assert sorted({number for block in origins for number in block}) == list(range(10))
    for start in range(0, len(origins) - 15, 16):
        assert len({number for block in origins[start : start + 16] for number in block}) >= 5
    framing = {VOCABULARY.cls, VOCABULARY.sep}
    for block, numbers in zip(batcher.examples(books), origins, strict=True):
        assert set(block.tolist()) <= framing | {token for number in numbers for s in books[number] for token in s}


def test_the_share_of_masked_tokens_is_the_recipes() -> None:
    examples = [np.full(62, 10) for _ in range(50)]
    batcher = MlmBatcher(MlmConfig(name="mlm", max_tokens=64), VOCABULARY, mask=0.4)
    assert batcher.micro_batch(examples, rngs(50)).counts["mlm"] == pytest.approx(0.4 * 62 * 50, rel=0.02)


def causal_states(bert, ids):
    """BERT's states of one sequence without padding, [T, H], with causal attention."""
    e, n = bert.embeddings, len(ids)
    words = e.word_embeddings.weight[torch.from_numpy(ids)] + e.position_embeddings.weight[:n]
    x = e.LayerNorm(words + e.token_type_embeddings.weight[0])
    for layer in bert.encoder.layer:
        own = layer.attention.self
        seen = [range(t + 1) for t in range(n)]
        context = plain.attend(own.query(x), own.key(x), own.value(x), bert.config.num_attention_heads, seen)
        x = layer.attention.output.LayerNorm(x + layer.attention.output.dense(context))
        x = layer.output.LayerNorm(x + layer.output.dense(F.gelu(layer.intermediate.dense(x))))
    return x


def test_a_causal_models_loss_gradients_and_vectors_equal_a_plain_reference():
    """-sum of log P(x_t | x_<t); the embedding is also the output projection (Radford et al., 2018, eq. 1 and 2)."""
    model, batch = perturbed(Clm(trunk(is_decoder=True))), batch_of(ClmConfig(name="clm", max_tokens=24), EXAMPLES)
    loss, vectors = 0.0, []
    for ids in EXAMPLES:
        states = causal_states(model.trunk, ids)
        log_p = (states @ model.trunk.embeddings.word_embeddings.weight.T).log_softmax(-1)
        loss -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
        vectors.append(states[-1])
    plain.same_losses_and_gradients(model, batch, {"clm": loss})
    arrays = tensors(batch)
    embedded = model.embed_documents(arrays["input_ids"], arrays["attention_mask"]).vectors[:, 0]
    torch.testing.assert_close(embedded, torch.stack(vectors), rtol=0, atol=1e-10)


def test_trunks_that_are_not_causal_are_refused():
    for name in ("bert", "roberta"):
        with pytest.raises(ValueError, match=f"'{name}' sees later tokens: set trunk.is_decoder: true"):
            Clm(trunk(model_type=name))
    sizes = {"vocab_size": 40, "n_layers": 1, "dim": 8, "n_heads": 2, "hidden_dim": 8}
    distilbert = build_trunk({"model_type": "distilbert", **sizes})
    with pytest.raises(ValueError, match="model_type 'distilbert' has no causal attention: take bert or roberta"):
        Clm(distilbert.train())
    assert distilbert.training  # not switched to evaluation


def masked_rows(model, batch, examples):
    """Yield each example, the states of its masked input by layer, [T, H], and its slots under the mask."""
    ids, slots = batch.arrays["input_ids"], batch.arrays["mlm_positions"][batch.arrays["mlm_targets"] != IGNORED]
    for row, example in enumerate(examples):
        n, first = len(example), row * ids.shape[1]
        masked = [t for t in range(n) if first + t in slots]
        yield example, plain.backbone(model.trunk, ids[row, :n]), masked


def condenser(early_layers=None, head_layers=2, **config):
    keys = CondenserConfig(name="condenser", early_layers=early_layers, head_layers=head_layers)
    return perturbed(Condenser(trunk(**{"num_hidden_layers": 4, **config}), keys))


@pytest.mark.parametrize(
    ("examples", "layers"),
    [
        (EXAMPLES, {}),
        (blocks([22]), {"early_layers": 1, "head_layers": 1}),
        (blocks([1]), {}),
        (EXAMPLES[:2], {"early_layers": 3, "head_layers": 3}),
    ],
)
def test_condensers_losses_and_gradients_equal_a_plain_reference(examples, layers):
    """Both losses as in the paper, one unpadded sequence at a time."""
    model = condenser(**layers)
    batch = batch_of(CondenserConfig(name="condenser", max_tokens=MAX_TOKENS), examples)
    losses = dict.fromkeys(["mlm", "head"], torch.zeros(()).double())
    embedding = model.trunk.get_input_embeddings().weight
    for ids, states, masked in masked_rows(model, batch, examples):
        x = torch.cat([states[-1][:1], states[layers.get("early_layers", 2)][1:]])
        for layer in model.head:
            x = plain.transformer_layer(layer, x, x, [list(range(len(ids)))] * len(ids))
        for name, hidden in (("mlm", states[-1]), ("head", x)):
            losses[name] = losses[name] + plain.lm_loss(model.lm_head, hidden[masked], embedding, ids[masked])
    plain.same_losses_and_gradients(model, batch, losses)


def test_without_early_layers_the_first_half_is_early():
    assert condenser(num_hidden_layers=5).early_layers == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"early_layers": 4}, "early_layers must be at least 1 and below the trunk's 4 layers, not 4"),
        ({"num_hidden_layers": 1}, "below the trunk's 1 layers, not 0"),
    ],
)
def test_unsuitable_layers_and_trunks_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        condenser(**keys)


@pytest.mark.parametrize(
    ("examples", "pooling"), [(EXAMPLES, "cls"), (EXAMPLES, "mean"), (blocks([22]), "cls"), (blocks([1]), "mean")]
)
def test_retromaes_losses_and_gradients_equal_a_plain_reference(examples, pooling):
    """Both losses as in the paper; the batcher's docstring defines the bits of what each slot sees."""
    keys = RetroMaeConfig(name="retromae", max_tokens=24, pooling=pooling)
    model, batch = perturbed(keys.model(trunk())), batch_of(keys, examples)
    losses = dict.fromkeys(["mlm", "decoder"], torch.zeros(()).double())
    embedding, decoder = model.trunk.get_input_embeddings().weight, model.decoder
    positions = decoder.positions.weight
    for row, (ids, states, masked) in enumerate(masked_rows(model, batch, examples)):
        n, bits = len(ids), batch.arrays["visible_bits"][row]
        h_0 = states[-1][0] if pooling == "cls" else states[-1].mean(0)
        losses["mlm"] = losses["mlm"] + plain.lm_loss(model.lm_head, states[-1][masked], embedding, ids[masked])
        queries = torch.stack([h_0 + positions[t] for t in range(n)])
        context = torch.stack([h_0, *(decoder.norm(embedding[ids[t]] + positions[t]) for t in range(1, n))])
        seen = [[j for j in range(n) if bits[i][j // 8] >> (j % 8) & 1] for i in range(n)]
        decoded = plain.transformer_layer(decoder.layer, queries, context, seen)
        losses["decoder"] = losses["decoder"] + plain.lm_loss(model.lm_head, decoded[1:], embedding, ids[1:])
    plain.same_losses_and_gradients(model, batch, losses)


def test_every_position_has_its_own_sample_of_the_right_size():
    rng = np.random.default_rng(0)
    samples = {hidden: visible_tokens(200, hidden, rng) for hidden in (0.5, 0.7, 0.0, 1.0)}
    for hidden, visible in samples.items():
        assert visible[:, 0].all()
        assert not visible.diagonal()[1:].any()
        others = visible[:, 1:][~np.eye(200, dtype=bool)[:, 1:]]
        assert others.mean() == pytest.approx(1 - hidden, abs=0.01)
    assert len({row.tobytes() for row in samples[0.5]}) == 200  # drawn separately for each row
    assert (samples[0.5][1:100, 1:] == samples[0.5][101:, 1:]).mean() == pytest.approx(0.5, abs=0.02)


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(0, 9))
def test_bits_are_unpacked_as_packed(length, seed, extra):
    visible = visible_tokens(length, 0.5, np.random.default_rng(seed))
    packed = np.pad(np.packbits(visible, axis=1, bitorder="little"), ((0, 0), (0, extra)))
    unpacked = unpack_bits(torch.from_numpy(packed), length)
    assert unpacked.dtype == torch.bool
    assert np.array_equal(unpacked.numpy(), visible)


def test_retromaes_masking_rates_are_the_recipes():
    long = [np.concatenate([[VOCABULARY.cls], np.arange(400) % 30 + 5, [VOCABULARY.sep]])] * 30
    arrays, counts, _ = batch_of(RetroMaeConfig(name="retromae", max_tokens=402, encoder_mask=0.2), long)
    assert counts["mlm"] / (30 * 400) == pytest.approx(0.2, abs=0.003)
    seen = unpack_bits(torch.from_numpy(arrays["visible_bits"]), 402).double()
    assert seen.mean().item() == pytest.approx(0.5, abs=0.01)
