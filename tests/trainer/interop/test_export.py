"""Exported folders, loaded offline by the libraries that they are for, against the trainer's own embeddings."""

import importlib
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.framing import Framing
from deepsiam.models.matching.siamese import Siamese
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests import toy
from tests.trainer.runs import write_run

TEXTS = [
    "abc de fghij",
    "Upper CASE, naïve café!",
    "",
    "a [MASK] and a [SEP] that are text",
    "unknown ☃ 漢字",
    " ".join(["long"] * 100),
]
MAX_TOKENS = 24
ROBERTA = {**toy.TRUNK, "model_type": "roberta", "type_vocab_size": 1}


@pytest.fixture
def tokenizer_json(toy_collection: Path) -> Path:
    return toy_collection / "tokenizer.json"


def siamese(run: Path, tokenizer_json: Path, **changes: object) -> TrainedModel:
    method = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": MAX_TOKENS, **changes}
    return load_trained(write_run(run, tokenizer_json, **method))


def own_embeddings(trained: TrainedModel) -> np.ndarray:
    texts = trained.tokenizer.encode(TEXTS)
    assert isinstance(trained.model, Siamese)
    return TextEncoder(trained.model.embed_documents, Framing(trained.tokenizer, MAX_TOKENS)).embeddings(texts)


def own_ids(trained: TrainedModel) -> list[list[int]]:
    t = trained.tokenizer
    return [[t.cls, *ids[: MAX_TOKENS - 2].tolist(), t.sep] for ids in t.encode(TEXTS)]


def load_stock(folder: Path) -> torch.nn.Module:
    """Load with AutoModel; no key may be missing or unexpected."""
    model, problems = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(problems.values()), problems
    return model.eval()


def stock_hidden(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """last_hidden_state [B, T, H] and mask [B, T] of TEXTS, computed with transformers alone."""
    batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return load_stock(folder)(**batch).last_hidden_state, batch["attention_mask"]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_sentence_transformer_is_the_trainers_encoder(
    tmp_path: Path, tokenizer_json: Path, pooling: str, similarity: str
) -> None:
    from sentence_transformers import SentenceTransformer

    trained = siamese(tmp_path / "run", tokenizer_json, pooling=pooling, similarity=similarity)
    export_encoder(trained, tmp_path / "out")
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    own = own_embeddings(trained)
    np.testing.assert_allclose(model.encode(TEXTS), own, atol=1e-5)
    assert np.ptp(own, axis=0).max() > 0.1  # the texts' embeddings differ
    assert model.max_seq_length == MAX_TOKENS
    assert model.similarity_fn_name == similarity
    np.testing.assert_allclose(model.similarity(own, own), own @ own.T, atol=1e-4)


@pytest.mark.parametrize("dimensions", [[32, 8, 3], [12, 5]])
def test_numbers_of_dimensions_are_told(tmp_path: Path, tokenizer_json: Path, dimensions: list[int]) -> None:
    from sentence_transformers import SentenceTransformer

    trained = siamese(tmp_path / "run", tokenizer_json, similarity="cosine", pooling="mean", dimensions=dimensions)
    export_encoder(trained, tmp_path / "out")
    assert (
        json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())["truncate_dim"]
        == (dimensions[0])
    )
    mark = json.loads((tmp_path / "out" / "deepsiam.json").read_text())
    assert (mark["dimensions"], mark["max_query_tokens"]) == (dimensions, trained.method.max_query_tokens)
    assert f"truncate_dim={dimensions[-1]}" in (tmp_path / "out" / "README.md").read_text()
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    own = own_embeddings(trained)
    assert own.shape[1] == model.truncate_dim == dimensions[0]
    theirs = model.encode(TEXTS)
    np.testing.assert_allclose(model.similarity(theirs, theirs), own @ own.T, atol=1e-5)
    assert load_any(tmp_path / "out").method.dimensions == tuple(dimensions)  # type: ignore[attr-defined]
    short = SentenceTransformer(str(tmp_path / "out"), device="cpu", truncate_dim=dimensions[-1]).encode(TEXTS)
    first = own[:, : dimensions[-1]] / np.linalg.norm(own[:, : dimensions[-1]], axis=1, keepdims=True)
    np.testing.assert_allclose(model.similarity(short, short), first @ first.T, atol=1e-5)


@pytest.mark.parametrize("trunk", [toy.TRUNK, ROBERTA], ids=["bert", "roberta"])
def test_a_causal_encoder_stays_causal_in_stock_libraries(
    tmp_path: Path, tokenizer_json: Path, trunk: dict[str, object]
) -> None:
    from sentence_transformers import SentenceTransformer

    method = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": MAX_TOKENS, "pooling": "last"}
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, trunk={**trunk, "is_decoder": True}, **method))
    export_encoder(trained, tmp_path / "out")
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS), own_embeddings(trained), atol=1e-5
    )
    hidden, _ = stock_hidden(tmp_path / "out")
    np.testing.assert_allclose(hidden[:, 0], hidden[:1, 0].expand(len(TEXTS), -1), atol=1e-5)  # [CLS] sees no text


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_tokenizer_gives_the_trainers_ids(tmp_path: Path, tokenizer_json: Path, kind: str) -> None:
    if kind == "bpe":
        tokenizer_json = tokenizers.train(TEXTS, 300, tmp_path / "tokenizer.json", "bpe").path
    trained = siamese(tmp_path / "run", tokenizer_json)
    export_encoder(trained, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(TEXTS, truncation=True)["input_ids"] == own_ids(trained)
    assert tokenizer.model_max_length == MAX_TOKENS
    found = replace(trained, tokenizer=trained.tokenizer.splitting(False))  # of a published folder
    export_encoder(found, tmp_path / "found")
    found_ids = AutoTokenizer.from_pretrained(tmp_path / "found")(TEXTS, truncation=True)["input_ids"]
    assert found_ids == own_ids(found)
    assert (found_ids != own_ids(trained)) is (kind == "wordpiece")  # [MASK] is not one of the other's
    assert len(tokenizer(TEXTS[-1])["input_ids"]) > MAX_TOKENS  # truncated only on request
    special = Vocabulary(
        tokenizer.vocab_size, *(getattr(tokenizer, f"{n}_token_id") for n in ("pad", "unk", "cls", "sep", "mask"))
    )
    assert special == Vocabulary(*(getattr(trained.tokenizer, field.name) for field in fields(Vocabulary)))
    assert len(tokenizer) == trained.tokenizer.vocab_size
    assert tokenizer.padding_side == "right"


@pytest.mark.parametrize("name", ["seed", "mlm"])
def test_a_pretrained_run_is_a_stock_model_and_its_decoder(tmp_path: Path, tokenizer_json: Path, name: str) -> None:
    method = {"name": name, "max_tokens": MAX_TOKENS}
    if name == "seed":
        method |= {"decoder_layers": 2, "window": 3, "variant": "released"}
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, **method))
    out = tmp_path / "out"
    export_encoder(trained, out, with_decoder=True)
    hidden, mask = stock_hidden(out)
    ids = AutoTokenizer.from_pretrained(out)(TEXTS, padding=True, truncation=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = trained.model.trunk(input_ids=ids, attention_mask=mask).last_hidden_state
    np.testing.assert_allclose(hidden[mask.bool()], own[mask.bool()], atol=1e-5)
    assert not (out / "modules.json").exists()
    assert not any(key.startswith(("decoder.", "lm_head.", "trunk.")) for key in load_file(out / "model.safetensors"))

    instructions = json.loads((out / "decoder.json").read_text())
    module, kind = instructions["class"].rsplit(".", 1)
    model = getattr(importlib.import_module(module), kind)(**instructions["method"]).model(load_stock(out))
    keys = model.load_state_dict(load_file(out / "decoder.safetensors"), strict=False)
    assert not keys.unexpected_keys
    assert all(key.startswith("trunk.") for key in keys.missing_keys)
    rebuilt = model.state_dict()
    for key, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, rebuilt[key]), key


def test_the_card_of_a_cross_thought_encoder_shows_its_embedding(tmp_path: Path, tokenizer_json: Path) -> None:
    method = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 6, "special_tokens": 3}
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, **method))
    out = tmp_path / "out"
    export_encoder(trained, out)
    assert AutoTokenizer.from_pretrained(out).model_max_length == toy.TRUNK["max_position_embeddings"] - 2
    code = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)
    variables: dict[str, torch.Tensor] = {}
    exec("\n".join(code), variables)  # as a reader of the README.md would
    t = trained.tokenizer
    ids = torch.tensor([[t.cls, *t.encode(["a text"])[0].tolist(), t.sep]])
    torch.testing.assert_close(
        variables["embedding"], trained.model.embed_documents(ids, ids == ids).vectors[:, 0], atol=1e-5, rtol=0
    )


def test_the_decoder_is_exported_only_on_request(tmp_path: Path, tokenizer_json: Path) -> None:
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, name="seed", max_tokens=MAX_TOKENS))
    export_encoder(trained, tmp_path / "out")
    assert not list((tmp_path / "out").glob("decoder*"))


def pair_scores_of(trained: TrainedModel, pairs: list[tuple[str, str]]) -> np.ndarray:
    """The run's own scores, each pair scored alone."""
    framing = trained.method.pair_framing(trained.tokenizer)  # type: ignore[attr-defined]
    scores = []
    for pair in pairs:
        arrays = framing.arrays(*([tokens] for tokens in trained.tokenizer.encode(pair)))
        with torch.no_grad():
            scores.append(trained.model.score_pairs(**{k: torch.from_numpy(v) for k, v in arrays.items()})[0])  # type: ignore[operator]
    return torch.stack(scores).numpy()


PAIRS = [(a, b) for a in TEXTS[:4] for b in TEXTS[:5]]


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("types", [1, 2])
def test_a_cross_encoder_scores_as_the_trainers(
    tmp_path: Path, tokenizer_json: Path, classes: int | None, types: int
) -> None:
    from sentence_transformers import CrossEncoder

    loss = {"loss": "classes", "classes": classes} if classes else {"loss": "binary", "hard_negatives": 1}
    method = {"name": "cross_encoder", "max_query_tokens": 40, "max_document_tokens": 40, **loss}
    trunk = {**toy.TRUNK, "type_vocab_size": types}
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, trunk=trunk, **method))
    export_encoder(trained, tmp_path / "out")
    expected = pair_scores_of(trained, PAIRS)
    assert np.ptp(expected, axis=0).min() > 1e-3
    model = CrossEncoder(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(model.predict(PAIRS), expected, rtol=1e-4, atol=1e-5)
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        logits = stock(**tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits.numpy().reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f'CrossEncoder("{tmp_path / "out"}")' in card
    assert ("predicts one of 3 classes" in card) == bool(classes)
