import pytest
import torch

from deepsiam.models.encode import encode
from deepsiam.models.trunk import max_positions
from tests.models.tiny import CONFIG, trunk


def test_longest_input():
    assert max_positions(trunk()) == CONFIG["max_position_embeddings"]
    roberta = trunk(model_type="roberta", max_position_embeddings=12 + 1, pad_token_id=0)
    assert max_positions(roberta) == 12  # positions start at pad_token_id + 1
    ids = torch.full((1, 13), 5)
    encode(roberta, ids[:, :12], ids[:, :12] > 0)
    with pytest.raises((IndexError, RuntimeError)):
        encode(roberta, ids, ids > 0)
