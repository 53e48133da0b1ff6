import numpy as np
import pytest
import torch

from models.encode import encode, insert_special_tokens, is_causal
from models.trunk import require_bidirectional
from tests.models.tiny import VOCABULARY, trunk

IDS = torch.from_numpy(np.random.default_rng(0).integers(5, VOCABULARY.vocab_size, (3, 12)))
MASK = torch.arange(12) < torch.tensor([12, 1, 7])[:, None]


def test_hidden_states_equal_stock_bert_called_the_usual_way():
    model = trunk()
    usual = model(input_ids=IDS, attention_mask=MASK.long(), token_type_ids=torch.zeros_like(IDS)).last_hidden_state
    torch.testing.assert_close(encode(model, IDS, MASK), usual, rtol=0, atol=1e-12)


def test_token_types_are_those_of_stock_bert():
    model, types = trunk(), (torch.arange(12) >= torch.tensor([5, 1, 3])[:, None]).long()
    usual = model(input_ids=IDS, attention_mask=MASK.long(), token_type_ids=types).last_hidden_state
    torch.testing.assert_close(encode(model, IDS, MASK, types), usual, rtol=0, atol=1e-12)
    assert (encode(model, IDS, MASK, types) - encode(model, IDS, MASK)).abs().max() > 0.1
    torch.testing.assert_close(encode(model, IDS, MASK, 0 * types), encode(model, IDS, MASK), rtol=0, atol=0)


@pytest.mark.parametrize("model_type", ["roberta", "electra"])
def test_other_encoders_ignore_padding_too(model_type):
    extra = {"embedding_size": 16} if model_type == "electra" else {}
    model = trunk(model_type=model_type, max_position_embeddings=32, **extra).eval()
    short = encode(model, IDS[2:, :7], MASK[2:, :7])
    torch.testing.assert_close(encode(model, IDS, MASK)[2:, :7], short, rtol=0, atol=1e-12)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra"])
def test_a_causal_encoder_sees_no_later_token_and_is_stock_hugging_faces(model_type):
    extra = {"embedding_size": 16} if model_type == "electra" else {}
    model = trunk(model_type=model_type, max_position_embeddings=32, is_decoder=True, **extra).eval()
    states = encode(model, IDS, MASK)
    usual = model(input_ids=IDS, attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(states[MASK], usual[MASK], rtol=0, atol=1e-12)
    torch.testing.assert_close(encode(model, IDS[:, :5], MASK[:, :5])[0], states[0, :5], rtol=0, atol=1e-12)
    assert torch.isfinite(encode(model, IDS, MASK & False)).all()
    assert is_causal(model)
    with pytest.raises(ValueError, match="causal"):
        require_bidirectional(model)


@pytest.mark.parametrize("number", [0, 2])
def test_special_tokens_are_inserted_after_cls(number):
    model = trunk(vocab_size=VOCABULARY.vocab_size + number)
    texts = torch.tensor([[2, 7, 3], [2, 3, 0]])
    ids, mask = insert_special_tokens(model, texts, texts != VOCABULARY.pad, number)
    added = [40, 41][:number]
    assert ids.tolist() == [[2, *added, 7, 3], [2, *added, 3, 0]]
    assert mask.long().tolist() == [[1] * (3 + number), [1] * (2 + number) + [0]]
