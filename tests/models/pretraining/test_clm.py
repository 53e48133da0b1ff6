import pytest
import torch
import torch.nn.functional as F

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.pretraining.clm import Clm, ClmConfig
from tests.models import plain
from tests.models.tiny import (
    EXAMPLES,
    MAX_TOKENS,
    batch_of,
    perturbed,
    tensors,
    trunk,
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
    model, batch = perturbed(Clm(trunk(is_decoder=True))), batch_of(ClmConfig(name="clm", max_tokens=24), EXAMPLES)
    expected = 0.0
    for ids in EXAMPLES:
        log_p = (plain_states(model.trunk, ids) @ model.trunk.embeddings.word_embeddings.weight.T).log_softmax(-1)
        expected -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
    plain.same_losses_and_gradients(model, batch, {"clm": expected})


def test_the_embedding_of_a_text_is_the_state_of_its_last_token():
    model = perturbed(Clm(trunk(is_decoder=True)))
    arrays = tensors(batch_of(ClmConfig(name="clm", max_tokens=MAX_TOKENS), EXAMPLES))
    embedded = model.embed_documents(arrays["input_ids"], arrays["attention_mask"]).vectors[:, 0]
    for row, ids in zip(embedded, EXAMPLES, strict=True):
        torch.testing.assert_close(row, plain_states(model.trunk, ids)[-1], rtol=0, atol=1e-10)


def test_trunks_that_are_not_causal_are_refused():
    for name in ("bert", "roberta"):
        with pytest.raises(ValueError, match=f"'{name}' sees later tokens: set trunk.is_decoder: true"):
            Clm(trunk(model_type=name))
    distilbert = build_trunk(
        {"model_type": "distilbert", "vocab_size": 40, "n_layers": 1, "dim": 8, "n_heads": 2, "hidden_dim": 8}
    )
    with pytest.raises(ValueError, match="model_type 'distilbert' has no causal attention: take bert or roberta"):
        Clm(distilbert.train())
    assert distilbert.training  # not switched to evaluation
