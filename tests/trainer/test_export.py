"""Exported folders, loaded by the libraries they are made for, offline, against the trainer's own embeddings."""

import importlib
import json
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from data_prep import tokenizer as tokenizers
from data_prep.errors import InputError
from models.task import Vocabulary
from tests import toy
from tests.trainer.runs import STEP, write_run
from trainer.export import export, main
from trainer.methods import vocabulary_of
from trainer.retrieval import encode_texts
from trainer.trained import Trained, load

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


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("loading an export asked the network for something")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def tokenizer_json(toy_collection: Path) -> Path:
    return toy_collection / "tokenizer.json"


def siamese(run: Path, tokenizer_json: Path, **changes: object) -> Trained:
    method = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": MAX_TOKENS, **changes}
    return load(write_run(run, tokenizer_json, **method))


def own_embeddings(trained: Trained) -> np.ndarray:
    texts = trained.tokenizer.encode(TEXTS)
    return encode_texts(trained.model, texts, vocabulary_of(trained.tokenizer), MAX_TOKENS)


def own_ids(trained: Trained) -> list[list[int]]:
    t = trained.tokenizer
    return [[t.cls, *ids[: MAX_TOKENS - 2].tolist(), t.sep] for ids in t.encode(TEXTS)]


def load_stock(folder: Path) -> torch.nn.Module:
    """AutoModel's own loading, with nothing missing and nothing left over."""
    model, about = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(about.values()), about
    return model.eval()


def stock_hidden(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """last_hidden_state [B, T, H] and mask [B, T] of TEXTS, with nothing but transformers."""
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
    export(trained, tmp_path / "out")
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    own = own_embeddings(trained)
    np.testing.assert_allclose(model.encode(TEXTS), own, atol=1e-5)
    assert np.ptp(own, axis=0).max() > 0.1  # the texts' embeddings differ
    assert model.max_seq_length == MAX_TOKENS
    assert model.similarity_fn_name == similarity
    np.testing.assert_allclose(model.similarity(own, own), own @ own.T, atol=1e-4)


@pytest.mark.parametrize("trunk", [toy.TRUNK, ROBERTA], ids=["bert", "roberta"])
def test_a_causal_encoder_stays_causal_in_stock_libraries(
    tmp_path: Path, tokenizer_json: Path, trunk: dict[str, object]
) -> None:
    from sentence_transformers import SentenceTransformer

    method = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": MAX_TOKENS, "pooling": "last"}
    trained = load(write_run(tmp_path / "run", tokenizer_json, trunk={**trunk, "is_decoder": True}, **method))
    export(trained, tmp_path / "out")
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS), own_embeddings(trained), atol=1e-5
    )
    hidden, _ = stock_hidden(tmp_path / "out")
    np.testing.assert_allclose(hidden[:, 0], hidden[:1, 0].expand(len(TEXTS), -1), atol=1e-5)  # [CLS] has seen nothing


@pytest.mark.parametrize("trunk", [toy.TRUNK, ROBERTA], ids=["bert", "roberta"])
def test_auto_model_is_the_trainers_encoder(tmp_path: Path, tokenizer_json: Path, trunk: dict[str, object]) -> None:
    run = write_run(
        tmp_path / "run", tokenizer_json, trunk=trunk, name="siamese", max_document_tokens=MAX_TOKENS, pooling="mean"
    )
    trained = load(run)
    export(trained, tmp_path / "out")
    hidden, mask = stock_hidden(tmp_path / "out")
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(mean, own_embeddings(trained), atol=1e-5)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_tokenizer_gives_the_trainers_ids(tmp_path: Path, tokenizer_json: Path, kind: str) -> None:
    if kind == "bpe":
        tokenizer_json = tokenizers.train(TEXTS, 300, tmp_path / "tokenizer.json", "bpe").path
    trained = siamese(tmp_path / "run", tokenizer_json)
    export(trained, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(TEXTS, truncation=True)["input_ids"] == own_ids(trained)
    assert tokenizer.model_max_length == MAX_TOKENS
    assert len(tokenizer(TEXTS[-1])["input_ids"]) > MAX_TOKENS  # cut only where asked
    special = Vocabulary(
        tokenizer.vocab_size, *(getattr(tokenizer, f"{n}_token_id") for n in ("pad", "unk", "cls", "sep", "mask"))
    )
    assert special == vocabulary_of(trained.tokenizer)
    assert len(tokenizer) == trained.tokenizer.vocab_size
    assert tokenizer.padding_side == "right"


@pytest.mark.parametrize("name", ["seed", "mlm"])
def test_a_pretrained_run_is_a_stock_model_and_its_decoder(tmp_path: Path, tokenizer_json: Path, name: str) -> None:
    method = {"name": name, "max_tokens": MAX_TOKENS}
    if name == "seed":
        method |= {"decoder_layers": 2, "window": 3, "variant": "released"}
    trained = load(write_run(tmp_path / "run", tokenizer_json, **method))
    out = tmp_path / "out"
    export(trained, out, with_decoder=True)
    hidden, mask = stock_hidden(out)
    ids = AutoTokenizer.from_pretrained(out)(TEXTS, padding=True, truncation=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = trained.model.trunk(input_ids=ids, attention_mask=mask).last_hidden_state
    np.testing.assert_allclose(hidden[mask.bool()], own[mask.bool()], atol=1e-5)
    assert not (out / "modules.json").exists()
    assert not any(key.startswith(("decoder.", "lm_head.", "trunk.")) for key in load_file(out / "model.safetensors"))

    about = json.loads((out / "decoder.json").read_text())  # rebuild as it says
    module, kind = about["class"].rsplit(".", 1)
    model = getattr(importlib.import_module(module), kind)(load_stock(out), **about["arguments"])
    keys = model.load_state_dict(load_file(out / "decoder.safetensors"), strict=False)
    assert not keys.unexpected_keys
    assert all(key.startswith("trunk.") for key in keys.missing_keys)
    rebuilt = model.state_dict()
    for key, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, rebuilt[key]), key


def test_a_cross_thought_encoder_reads_all_its_positions_and_its_card_says_how(
    tmp_path: Path, tokenizer_json: Path
) -> None:
    method = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 6, "special_tokens": 3}
    trained = load(write_run(tmp_path / "run", tokenizer_json, **method))
    out = tmp_path / "out"
    export(trained, out)
    assert AutoTokenizer.from_pretrained(out).model_max_length == toy.TRUNK["max_position_embeddings"] - 2
    shown = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)
    known: dict[str, torch.Tensor] = {}
    exec("\n".join(shown), known)  # as a reader would
    t = trained.tokenizer
    ids = torch.tensor([[t.cls, *t.encode(["a text"])[0].tolist(), t.sep]])
    torch.testing.assert_close(known["embedding"], trained.model.embed(ids, ids == ids), atol=1e-5, rtol=0)


def test_the_decoder_stays_behind_unless_asked_for(tmp_path: Path, tokenizer_json: Path) -> None:
    trained = load(write_run(tmp_path / "run", tokenizer_json, name="seed", max_tokens=MAX_TOKENS))
    export(trained, tmp_path / "out")
    assert not list((tmp_path / "out").glob("decoder*"))
    with pytest.raises(InputError, match="no decoder"):
        export(siamese(tmp_path / "tuned", tokenizer_json), tmp_path / "tuned_out", with_decoder=True)
    assert not (tmp_path / "tuned_out").exists()
    alone = load(write_run(tmp_path / "ict", tokenizer_json, name="ict", max_tokens=MAX_TOKENS))
    with pytest.raises(InputError, match="ict trains nothing beside the encoder"):
        export(alone, tmp_path / "ict_out", with_decoder=True)


def test_who_may_read_one_file_may_read_all(tmp_path: Path, tokenizer_json: Path) -> None:
    export(siamese(tmp_path / "run", tokenizer_json), tmp_path / "out")
    assert len({path.stat().st_mode for path in (tmp_path / "out").glob("*.*")}) == 1


def test_card_and_mark_say_where_it_is_from(tmp_path: Path, tokenizer_json: Path) -> None:
    trained = siamese(tmp_path / "run", tokenizer_json)
    export(trained, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert str(tmp_path / "run") in card
    assert f"step {STEP}" in card
    assert json.loads((tmp_path / "out" / "deepsiam.json").read_text())["step"] == STEP


def test_an_earlier_export_is_replaced_and_nothing_else(
    tmp_path: Path, tokenizer_json: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    siamese(run, tokenizer_json, similarity="cosine")
    main([str(run), str(out)])
    (out / "2_Normalize" / "stale").touch()
    assert str(out) in capsys.readouterr().out
    main([str(run), str(out)])
    assert not (out / "2_Normalize" / "stale").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    main([str(run), str(mine)])  # an empty folder
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    capsys.readouterr()
    for taken in ("full", "file"):
        with pytest.raises(SystemExit) as exit_:
            main([str(run), str(tmp_path / taken)])
        assert exit_.value.code == 2
        assert "not an earlier export" in capsys.readouterr().err
    assert os.listdir(tmp_path / "full") == ["thesis.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out", "mine", "full", "file"}


def test_a_failed_export_leaves_the_earlier_one(
    tmp_path: Path, tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, out = siamese(tmp_path / "run", tokenizer_json), tmp_path / "out"
    export(trained, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainer.export.save", full_disk)
    with pytest.raises(InputError, match="No space left"):
        export(trained, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}
