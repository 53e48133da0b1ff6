import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, BertLMHeadModel

from models.clm import Clm, ClmBatcher
from models.encoder import build_trunk, encode
from models.losses import IGNORED
from tests.models.checks import HALF_PRECISIONS, half_precision, training_lowers_every_loss
from tests.models.plain import same_gradients
from tests.models.tiny import MAX_TOKENS, VOCABULARY, blocks, documents, rngs, tensors, trunk

SENTENCES = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 2, 2], rng=5)


def causal(**config):
    """A causal trunk, no weight at a value that would hide a mistake."""
    made = trunk(is_decoder=True, **config)
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return made


def micro_batch(examples, start=0):
    return ClmBatcher(VOCABULARY, MAX_TOKENS).micro_batch(examples, rngs(len(examples), start))


def widen(arrays, width):
    """The same micro-batch with more padding."""
    wider, old = dict(arrays), arrays["input_ids"].shape[1]
    for name in ("input_ids", "attention_mask"):
        wider[name] = F.pad(arrays[name], (0, width - old), value=VOCABULARY.pad)
    wider["clm_positions"] = arrays["clm_positions"] // old * width + arrays["clm_positions"] % old
    return wider


def plain_states(bert, ids):
    """BERT's states of one sequence without padding, [T, H]: a position, a head, an earlier key at a time."""
    e, config = bert.embeddings, bert.config
    d = config.hidden_size // config.num_attention_heads
    x = torch.stack(
        [
            e.word_embeddings.weight[i] + e.position_embeddings.weight[t] + e.token_type_embeddings.weight[0]
            for t, i in enumerate(ids)
        ]
    )
    x = e.LayerNorm(x)
    for layer in bert.encoder.layer:
        query, key, value = (
            f(x) for f in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value)
        )
        rows = []
        for t in range(len(ids)):
            heads = []
            for part in (slice(h * d, (h + 1) * d) for h in range(config.num_attention_heads)):
                weights = torch.stack([query[t, part] @ key[j, part] / d**0.5 for j in range(t + 1)]).softmax(0)
                heads.append(sum(weights[j] * value[j, part] for j in range(t + 1)))
            rows.append(torch.cat(heads))
        x = layer.attention.output.LayerNorm(x + layer.attention.output.dense(torch.stack(rows)))
        x = layer.output.LayerNorm(x + layer.output.dense(F.gelu(layer.intermediate.dense(x))))
    return x


def test_loss_and_every_gradient_equal_a_plain_reference():
    """-sum of log P(x_t | x_<t), the embedding being the output too (Radford et al., 2018, equations 1 and 2)."""
    model = Clm(causal()).double()
    ours = model(**tensors(micro_batch(EXAMPLES)))["clm"]
    expected = 0.0
    for ids in EXAMPLES:
        log_p = (plain_states(model.trunk, ids) @ model.trunk.embeddings.word_embeddings.weight.T).log_softmax(-1)
        expected -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=0)
    same_gradients(model, ours, expected)


def test_the_states_are_those_of_hugging_faces_own_causal_bert():
    model = Clm(causal())
    stock = BertLMHeadModel(model.trunk.config).double().eval()
    stock.bert.load_state_dict(model.trunk.state_dict())
    arrays = tensors(micro_batch(EXAMPLES))
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    usual = stock.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(encode(model.trunk, ids, mask)[mask], usual[mask], rtol=0, atol=1e-12)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra"])
def test_invariant_3_a_later_token_never_changes_a_state(model_type):
    extra = {"electra": {"embedding_size": 16}, "roberta": {"max_position_embeddings": MAX_TOKENS + 1}}
    model = Clm(causal(model_type=model_type, **extra.get(model_type, {})))
    ids = torch.from_numpy(np.concatenate(EXAMPLES)[None, :12])
    mask = torch.ones_like(ids, dtype=torch.bool)
    before = encode(model.trunk, ids, mask)
    for j in range(12):
        other = ids.clone()
        other[0, j] = 5 + (ids[0, j] - 4) % 35  # another ordinary token
        change = (encode(model.trunk, other, mask) - before).abs().amax(-1)[0]
        assert not change[:j].any()
        assert (change[j:] > 1e-9).all()  # and every later state has seen it


def test_the_embedding_of_a_text_is_the_state_of_its_last_token():
    model = Clm(causal())
    arrays = tensors(micro_batch(EXAMPLES))
    embedded = model.embed(arrays["input_ids"], arrays["attention_mask"])
    for row, ids in zip(embedded, EXAMPLES, strict=True):
        torch.testing.assert_close(row, plain_states(model.trunk, ids)[-1], rtol=0, atol=1e-10)


@settings(max_examples=25)
@given(SENTENCES, st.sampled_from(["complete", "complete_doc"]), st.integers(3, MAX_TOKENS))
def test_targets_are_all_next_tokens_of_any_documents(lengths, packing, max_tokens):
    batcher = ClmBatcher(VOCABULARY, max_tokens, packing)
    examples = batcher.examples(documents(*lengths))
    arrays, counts = batcher.micro_batch(examples, rngs(len(examples)))
    real = arrays["clm_targets"] != IGNORED
    assert counts == {"clm": int(real.sum())} == {"clm": sum(len(ids) - 1 for ids in examples)}
    positions = arrays["clm_positions"][real]
    assert (arrays["input_ids"].ravel()[positions + 1] == arrays["clm_targets"][real]).all()
    assert arrays["attention_mask"].ravel()[positions + 1].all()
    assert (arrays["attention_mask"].sum(1) == [len(ids) for ids in examples]).all()
    assert len(batcher.origins(documents(*lengths))) == len(examples)


@settings(max_examples=20)
@given(SENTENCES, st.randoms(use_true_random=False))
def test_losses_are_the_sums_of_the_examples_losses_in_any_order(lengths, random):
    examples = blocks(*lengths)
    model = Clm(causal()).double()
    shuffled = random.sample(examples, len(examples))
    with torch.no_grad():
        together = model(**tensors(micro_batch(examples)))["clm"]
        mixed = model(**tensors(micro_batch(shuffled)))["clm"]
        apart = sum(model(**tensors(micro_batch([ids])))["clm"] for ids in examples)
    assert torch.isfinite(together)
    torch.testing.assert_close(together, apart, rtol=1e-10, atol=0)
    torch.testing.assert_close(together, mixed, rtol=1e-10, atol=0)


def test_invariant_8_more_padding_changes_nothing():
    model = Clm(causal()).double()
    arrays = tensors(micro_batch(EXAMPLES[1:]))
    assert arrays["input_ids"].shape[1] < MAX_TOKENS
    wider = widen(arrays, MAX_TOKENS)
    torch.testing.assert_close(model(**wider), model(**arrays), rtol=1e-12, atol=0)


def test_a_row_of_padding_alone_is_finite_and_counts_nothing():
    model = Clm(causal()).double()
    arrays = tensors(micro_batch(EXAMPLES))
    taller = {name: F.pad(a, (0, 0, 0, 1)) if a.ndim == 2 else a for name, a in arrays.items()}
    loss = model(**taller)["clm"]
    torch.testing.assert_close(loss, model(**arrays)["clm"], rtol=1e-12, atol=0)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_arrays_do_not_depend_on_chance():
    first, second = micro_batch(EXAMPLES), micro_batch(EXAMPLES, start=7)
    assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)


def test_nothing_but_the_trunk_is_learned_and_its_export_is_a_stock_causal_encoder(tmp_path):
    model = Clm(causal()).eval()
    assert all(name.startswith("trunk.") for name in model.state_dict())
    model.trunk.save_pretrained(tmp_path)
    stock = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False, dtype=torch.float64).eval()
    assert stock.config.is_decoder
    arrays = tensors(micro_batch(EXAMPLES))
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    theirs = stock(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(encode(model.trunk, ids, mask)[mask], theirs[mask], rtol=0, atol=1e-12)


@HALF_PRECISIONS
def test_half_precision_loss_is_fp32_and_near_the_exact_one(dtype):
    half_precision(Clm(trunk(is_decoder=True, initializer_range=0.02)).double(), tensors(micro_batch(EXAMPLES)), dtype)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "'bert' sees later tokens: set trunk.is_decoder: true"),
        ({"model_type": "roberta"}, "'roberta' sees later tokens: set trunk.is_decoder: true"),
        ({"model_type": "electra", "embedding_size": 8, "is_decoder": True}, "its width 8 must be hidden_size 16"),
    ],
)
def test_trunks_that_are_not_causal_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        Clm(trunk(**config))


def test_a_trunk_without_causal_attention_is_refused_by_name():
    distilbert = build_trunk(
        {"model_type": "distilbert", "vocab_size": 40, "n_layers": 1, "dim": 8, "n_heads": 2, "hidden_dim": 8}
    )
    with pytest.raises(ValueError, match="model_type 'distilbert' has no causal attention: take bert or roberta"):
        Clm(distilbert.train())
    assert distilbert.training  # as it was


def test_a_training_step_lowers_the_loss():
    training_lowers_every_loss(
        Clm(trunk(is_decoder=True, initializer_range=0.02)).double(),
        tensors(micro_batch(blocks([20], [20], [20], [20]))),
    )
