"""Trunks and methods that no machine could build are refused before anything of their size is made."""

from typing import Any

import pytest

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.sizes import check_sizes
from tests.toy import TRUNK


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000, and at most 1,000 is possible"),
        ({"hidden_size": 10**9}, "hidden_size is 1,000,000,000, and at most 16,777,216 is possible"),
        ({"vocab_size": 10**12}, "vocab_size is 1,000,000,000,000"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings is"),
        ({"type_vocab_size": -(10**12)}, "type_vocab_size is -1,000,000,000,000"),
        ({"vocab_size": 10**4000}, "vocab_size is a number of more than 64 bits"),
        ({"hidden_size": 2**20, "vocab_size": 2**24}, "its weights would be .* at most 68,719,476,736 are possible"),
        ({"hidden_size": 2**16, "num_hidden_layers": 1000}, "its weights would be"),
        ({"intermediate_size": 2**24, "hidden_size": 2**14}, "its weights would be"),
        ({"model_type": "modernbert", "num_hidden_layers": 10**9}, "modernbert configuration: num_hidden_layers is"),
        ({"model_type": "distilbert", "n_layers": 10**9}, "n_layers is 1,000,000,000, and at most 1,000"),
    ],
)
def test_a_trunk_that_cannot_be_built_is_refused(changes: dict[str, Any], words: str) -> None:
    common = {"bert": TRUNK, "modernbert": {}, "distilbert": {}}[changes.get("model_type", "bert")]
    with pytest.raises(ValueError, match=words):
        build_trunk({**common, "vocab_size": 300, **changes})


def test_sizes_are_found_at_any_depth_and_other_numbers_are_not_bounded() -> None:
    check_sizes({"rope_theta": 5 * 10**8, "nested": {"rope_theta": 10**9}, "eps": 1e30, "name": "1e30"}.items(), "")
    with pytest.raises(ValueError, match="a.json: num_labels is 100,000,000, and at most 100,000 is possible"):
        check_sizes({"num_labels": 10**8}.items(), "a.json: ")
    with pytest.raises(ValueError, match="a.json: text.num_hidden_layers is"):
        check_sizes({"text": {"num_hidden_layers": 10**8}}.items(), "a.json: ")
