"""The cross-encoder against sentence-transformers' CrossEncoder: the same weights score and learn alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.matching.cross_encoder import CrossEncoder, CrossEncoderConfig
from tests.models.tiny import CONFIG, VOCABULARY

rival = pytest.importorskip("sentence_transformers.cross_encoder", reason="the extra `dev` is not installed")

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
