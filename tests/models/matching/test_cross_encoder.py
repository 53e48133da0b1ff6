"""The cross-encoder: pairs, heads and losses, against one pair at a time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.models.batching.candidates import Example
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from tests.models import plain
from tests.models.matching.examples import group, micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
EXAMPLES = [positive(0, 1), positive(1, query=(30, 31, 32)), positive(2, given=[7, 8])]
POOLINGS = ("cls", "last", "mean", "max")
GROUPS = [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25})]
SCORED = [
    replace(positive(0, given=[4, 6, 7]), scores=np.array([2.0, 0.5, -1.0, 1.5], np.float32)),
    replace(positive(2, given=[8]), scores=np.array([0.0, 0.5], np.float32)),
]
LOSSES: list[tuple[Any, list[Example]]] = [
    ({"loss": "softmax", "negatives_per_query": 2}, EXAMPLES),
    ({"loss": "binary", "negatives_per_query": 1}, EXAMPLES),
    ({"loss": "kl"}, GROUPS),
    ({"loss": "margin_mse"}, GROUPS),
    ({"loss": "classes", "classes": 3}, [group({3: 2.0}), group({4: 0.0}), group({6: 1.0})]),
    ({"loss": {"softmax": 1.0, "kl": 0.5, "binary": 0.1}}, SCORED),
]


def config(**keys: Any) -> CrossEncoderConfig:
    return CrossEncoderConfig(name="cross_encoder", **{"max_query_tokens": 6, "max_document_tokens": 12, **keys})


def test_pairs_are_a_query_and_each_of_its_candidates() -> None:
    batch = micro_batch(config(loss="kl"), GROUPS)
    arrays = batch.arrays
    rows = [ids[mask].tolist() for ids, mask in zip(arrays["pair_ids"], arrays["pair_mask"], strict=True)]
    query = [CLS, 30, 31, SEP]
    assert rows == [[*query, *[5 + i] * (i + 1), SEP] for i in (3, 6, 4, 5, 2)]
    assert arrays["pair_types"].sum(1).tolist() == [5, 8, 6, 7, 4]  # the tokens of the documents and their [SEP]
    assert arrays["candidates"].tolist() == [[0, 2, 3], [1, 4, -1]]
    assert batch.counts == {"kl": 2}
    assert batch.tokens == sum(2 + i + 1 for i in (3, 6, 4, 5, 2))
    assert micro_batch(config(loss="binary"), GROUPS).counts == {"binary": 5}


def test_a_norm_of_the_head_suits_a_trunk_that_names_no_epsilon() -> None:
    keys = config(hidden_norm=True, negatives_per_query=1)
    sizes = {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    model = keys.model(build_trunk({"model_type": "distilbert", "pad_token_id": 0, **sizes}))
    assert model.head[2].eps == 1e-12


LAYERS: list[dict[str, Any]] = [
    {"hidden_layer": False},
    {"hidden_activation": "relu"},
    {"hidden_activation": "gelu", "hidden_norm": True, "separators": 2},
    {"token_types": False, "max_pair_tokens": 12},
]


CASES = [("cls", {}, *loss) for loss in LOSSES]
CASES += [(pooling, layers, *LOSSES[i % 5]) for pooling in POOLINGS for i, layers in enumerate(LAYERS)]


@pytest.mark.parametrize(("pooling", "layers", "keys", "examples"), CASES)
def test_losses_and_gradients_against_one_pair_at_a_time(pooling: str, layers: Any, keys: Any, examples: Any) -> None:
    model = perturbed(config(pooling=pooling, **layers, **keys).model(trunk()))
    assert model.kind == "pairs"
    arrays = tensors(batch := micro_batch(model.keys, examples))
    read = zip(arrays["pair_ids"], arrays["pair_mask"], arrays["pair_types"] * model.keys.token_types, strict=True)
    states = [
        model.trunk(input_ids=ids[mask][None], token_type_ids=types[mask][None]).last_hidden_state[0]
        for ids, mask, types in read
    ]
    scores = plain.scores_of_heads(model, states)
    scores = scores if "classes" in keys else scores[:, 0]
    expected = plain.ranking_losses(model.keys.losses, arrays, [scores] * len(arrays["candidates"]))
    losses = model(**arrays)
    assert batch.counts.keys() == expected.keys()
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=0)  # labels are fp32
    plain.same_gradients(model, sum(losses.values()), sum(expected.values()), rtol=1e-5, atol=1e-7)


def test_the_head_has_the_dropout_of_the_encoder() -> None:
    distilbert = {"model_type": "distilbert", "vocab_size": 40, "dim": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.3}
    for encoder in (trunk(hidden_dropout_prob=0.3), build_trunk(distilbert)):
        model = config(negatives_per_query=1).model(encoder)
        (dropout,) = [part for part in model.head if isinstance(part, torch.nn.Dropout)]
        assert dropout.p == 0.3


def test_a_trunk_without_token_types_reads_pairs_without_them() -> None:
    roberta = trunk(model_type="roberta", type_vocab_size=1, max_position_embeddings=40)
    model = config(negatives_per_query=1).model(roberta)
    assert model.double()(**tensors(micro_batch(model.keys, EXAMPLES)))["softmax"].isfinite()
