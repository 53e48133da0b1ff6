"""The cross-encoder: pairs, heads and losses, against one pair at a time and against sentence-transformers'."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from deepsiam.models.batching.candidates import Example
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.cross_encoder import CrossEncoder, CrossEncoderConfig
from tests.models import plain
from tests.models.matching.examples import group, micro_batch, positive
from tests.models.tiny import CONFIG, VOCABULARY, perturbed, tensors, trunk

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
    expected = dict.fromkeys(model.keys.losses, torch.zeros((), dtype=torch.float64))
    for i, columns in enumerate(arrays["candidates"]):
        own = columns[columns >= 0]
        for loss in expected:
            taught = arrays["labels" if loss == "binary" or "scores" not in arrays else "scores"][i].double()
            expected[loss] = expected[loss] + plain.LOSSES[loss](scores[own], taught[: len(own)])
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


STEPS, PAIRS = 20, 8


def write_stock_model(folder: Path, classes: int) -> BertForSequenceClassification:
    """Write a Hugging Face folder whose token i, unless special, is the word w{i}."""
    torch.manual_seed(0)
    settings = {name: value for name, value in CONFIG.items() if name != "model_type"}
    model = BertForSequenceClassification(BertConfig(**settings, num_labels=classes))
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, VOCABULARY.vocab_size))]
    BertTokenizer(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    return model


def with_weights_of(stock: BertForSequenceClassification, keys: CrossEncoderConfig) -> CrossEncoder:
    """Our model with the stock model's weights."""
    model = keys.model(build_trunk(CONFIG))
    weights = stock.bert.state_dict()
    model.trunk.load_state_dict({name: weights[name] for name in model.trunk.state_dict()})
    model.head[0].load_state_dict(stock.bert.pooler.dense.state_dict())
    model.head[-1].load_state_dict(stock.classifier.state_dict())
    return model


def texts(ids: np.ndarray) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.mark.parametrize("classes", [1, 3])
def test_scores_and_loss_curves_are_those_of_sentence_transformers(tmp_path: Path, classes: int) -> None:
    rival = pytest.importorskip("sentence_transformers.cross_encoder", reason="the extra `dev` is not installed")
    chosen: dict[str, Any] = {"loss": "classes", "classes": classes} if classes > 1 else {"loss": "binary"}
    keys = CrossEncoderConfig(name="cross_encoder", max_query_tokens=8, max_document_tokens=16, **chosen)
    ours = with_weights_of(write_stock_model(tmp_path, classes), keys)
    theirs = rival.CrossEncoder(str(tmp_path), device="cpu", activation_fn=torch.nn.Identity())
    loss_class = rival.losses.CrossEntropyLoss if classes > 1 else rival.losses.BinaryCrossEntropyLoss
    their_loss = loss_class(theirs)

    rng = np.random.default_rng(0)
    pairs = [[rng.integers(5, 40, rng.integers(1, most)) for _ in range(STEPS * PAIRS)] for most in (6, 14)]
    labels = torch.from_numpy(rng.integers(0, max(2, classes), STEPS * PAIRS))
    framing = keys.pair_framing(VOCABULARY)

    def arrays(rows: slice) -> dict[str, torch.Tensor]:
        return {k: torch.from_numpy(v) for k, v in framing.arrays(pairs[0][rows], pairs[1][rows]).items()}

    with torch.no_grad():
        scores = ours.eval().score_pairs(**arrays(slice(0, 40)))
    as_text = [[texts(ids) for ids in side] for side in pairs]
    expected = theirs.predict(list(zip(as_text[0][:40], as_text[1][:40], strict=True)), convert_to_tensor=True)
    assert scores.std() > 0.1
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)

    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (ours.train(), theirs.train())]
    curves: list[list[float]] = [[], []]
    for step in range(STEPS):
        rows = slice(step * PAIRS, (step + 1) * PAIRS)
        prefixed = {f"pair_{name}": array for name, array in arrays(rows).items()}
        candidates = torch.arange(PAIRS)[:, None]
        own = ours(**prefixed, candidates=candidates, labels=labels[rows, None].float())[keys.loss] / PAIRS
        other = their_loss([as_text[0][rows], as_text[1][rows]], labels[rows])
        for loss, optimizer, curve in zip((own, other), optimizers, curves, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
    assert np.ptp(curves[0]) > 0.1
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-4)
