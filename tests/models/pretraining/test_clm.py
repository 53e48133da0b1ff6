import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.clm import Clm, ClmBatcher, ClmConfig
from tests.models import plain
from tests.models.tiny import MAX_TOKENS, VOCABULARY, blocks, documents, perturbed, rngs, tensors, trunk

SENTENCES = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 2, 2], rng=5)


def causal(**config):
    """A `perturbed` causal trunk."""
    return perturbed(trunk(is_decoder=True, **config))


def micro_batch(examples, start=0):
    return ClmBatcher(ClmConfig(name="clm", max_tokens=MAX_TOKENS), VOCABULARY).micro_batch(
        examples, rngs(len(examples), start)
    )


def plain_states(bert, ids):
    """BERT's states of one sequence without padding, [T, H], with causal attention."""
    e, config = bert.embeddings, bert.config
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
        context = plain.attend(query, key, value, config.num_attention_heads, [range(t + 1) for t in range(len(ids))])
        x = layer.attention.output.LayerNorm(x + layer.attention.output.dense(context))
        x = layer.output.LayerNorm(x + layer.output.dense(F.gelu(layer.intermediate.dense(x))))
    return x


def test_loss_and_every_gradient_equal_a_plain_reference():
    """-sum of log P(x_t | x_<t); the embedding is also the output projection (Radford et al., 2018, eq. 1 and 2)."""
    model = Clm(causal()).double()
    ours = model(**tensors(micro_batch(EXAMPLES)))["clm"]
    expected = 0.0
    for ids in EXAMPLES:
        log_p = (plain_states(model.trunk, ids) @ model.trunk.embeddings.word_embeddings.weight.T).log_softmax(-1)
        expected -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=0)
    plain.same_gradients(model, ours, expected)


def test_the_embedding_of_a_text_is_the_state_of_its_last_token():
    model = Clm(causal())
    arrays = tensors(micro_batch(EXAMPLES))
    embedded = model.embed_documents(arrays["input_ids"], arrays["attention_mask"]).vectors[:, 0]
    for row, ids in zip(embedded, EXAMPLES, strict=True):
        torch.testing.assert_close(row, plain_states(model.trunk, ids)[-1], rtol=0, atol=1e-10)


@given(SENTENCES, st.sampled_from(["complete", "complete_doc"]), st.integers(8, MAX_TOKENS))
def test_targets_are_all_next_tokens_of_any_documents(lengths, packing, max_tokens):
    batcher = ClmBatcher(ClmConfig(name="clm", max_tokens=max_tokens, blocks=packing), VOCABULARY)
    examples = batcher.examples(documents(*lengths))
    arrays, counts, _ = batcher.micro_batch(examples, rngs(len(examples)))
    real = arrays["clm_targets"] != IGNORED
    assert counts == {"clm": int(real.sum())} == {"clm": sum(len(ids) - 1 for ids in examples)}
    positions = arrays["clm_positions"][real]
    assert (arrays["input_ids"].ravel()[positions + 1] == arrays["clm_targets"][real]).all()
    assert arrays["attention_mask"].ravel()[positions + 1].all()
    assert (arrays["attention_mask"].sum(1) == [len(ids) for ids in examples]).all()
    assert len(batcher.origins(documents(*lengths))) == len(examples)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "'bert' sees later tokens: set trunk.is_decoder: true"),
        ({"model_type": "roberta"}, "'roberta' sees later tokens: set trunk.is_decoder: true"),
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
    assert distilbert.training  # not switched to evaluation
