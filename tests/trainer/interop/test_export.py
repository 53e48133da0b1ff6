"""Exports of runs: what their libraries and we compute by them is what the run does; their tokens, code and cards."""

import importlib
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.trainer.interop.settings import COLBERT, DENSE, SPARSE, Kind
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests import toy
from tests.trainer.interop.published_folders import by_library, own_embeddings
from tests.trainer.interop.test_cross_encoder import own_scores
from tests.trainer.interop.test_round_trip import KINDS, Dense, compare
from tests.trainer.runs import write_run

TEXTS = [
    "abc de fghij",
    "Upper CASE, naïve café!",
    "",
    "a [MASK] (and) a [SEP], [Q], [D] that are text",
    "unknown ☃ 漢字",
    "ship, sail. - a; bread",
    " ".join(["long"] * 100),
]
LENGTHS: dict[str, Any] = {"max_query_tokens": 12, "max_document_tokens": 24}
PROMPTS = {"query_prompt": "abc:", "document_prompt": "de "}
BERT = {**toy.TRUNK, "is_decoder": True}
RUNS: dict[str, tuple[Kind, dict[str, Any]]] = {
    "cls": (DENSE, {"name": "siamese", "pooling": "cls"}),
    "mean": (DENSE, {"name": "siamese", "pooling": "mean", "similarity": "cosine"}),
    "last": (DENSE, {"name": "siamese", "pooling": "last", "trunk": BERT}),
    "last of roberta": (DENSE, {"name": "siamese", "pooling": "last", "trunk": {**BERT, "model_type": "roberta"}}),
    "colbert": (COLBERT, {"name": "colbert", "dimension": 16}),
    "colbert, prompts": (COLBERT, {"name": "colbert", "dimension": 16, "kind": "bpe", **PROMPTS}),
    "splade": (SPARSE, {"name": "sparse"}),
    "sum": (SPARSE, {"name": "sparse", "pooling": "sum"}),
    "query's tokens": (SPARSE, {"name": "sparse", "query": "tokens"}),
    "query's idf": (SPARSE, {"name": "sparse", "query": "idf"}),
    "query's table": (SPARSE, {"name": "sparse", "query": "table"}),
    "lexical": (SPARSE, {"name": "sparse", "query": "own_tokens", "document": "own_tokens"}),
    "lexical documents": (SPARSE, {"name": "sparse", "document": "own_tokens"}),
    "tokens of both": (SPARSE, {"name": "sparse", "query": "tokens", "document": "own_tokens"}),
    "two towers": (SPARSE, {"name": "sparse", "towers": 2}),
    "sparse, prompts": (SPARSE, {"name": "sparse", "query": "own_tokens", **PROMPTS}),
}
POLY: dict[str, dict[str, Any]] = {
    "learnt": {},
    "first": {"codes": "first", "towers": 1, "reduction": "mean"},
    "last": {"codes": "last", "kept_of_query": "start", "output_scaling": 0.5},
    "last_and_first": {"codes": "last_and_first", "reduction": "mean"},
    "prompts": {"codes": "first", "reduction": "mean", "kept_of_query": "start", "query_prompt": "🔎 abc de "},
}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tokenizers that know punctuation, by kind."""
    folder = tmp_path_factory.mktemp("vocabularies")
    return {kind: tokenizers.train(TEXTS, 300, folder / f"{kind}.json", kind).path for kind in ("wordpiece", "bpe")}


def exported(
    folder: Path, vocabularies: dict[str, Path], *, kind: str = "wordpiece", with_decoder: bool = False, **method: Any
) -> tuple[TrainedModel, Path]:
    """A run of a method, and its export."""
    trained = load_trained(write_run(folder / "run", vocabularies[kind], **method))
    export_encoder(trained, folder / "out", with_decoder)
    return trained, folder / "out"


@pytest.mark.parametrize("name", RUNS)
def test_libraries_and_we_compute_what_the_run_computes(
    tmp_path: Path, vocabularies: dict[str, Path], name: str
) -> None:
    kind, method = RUNS[name]
    lengths = {**LENGTHS, "max_query_tokens": 12 if kind == COLBERT else 24}
    (trained, out), trip = exported(tmp_path, vocabularies, **lengths, **method), KINDS[kind]()
    if isinstance(trip, Dense):
        trip.texts = TEXTS
    own = expected = trip.ours(trained)
    assert np.ptp(expected[0], axis=0).max() > 1e-2
    card = (out / "README.md").read_text()
    if method.get("query") == "tokens":
        assert own[0].max() > 1
        expected = [np.minimum(own[0], 1), own[1]]  # as the card says, a repeated token counts once
    assert ("counts a token once" in card) == (method.get("query") == "tokens")
    compare(trip.theirs(out), expected, 1e-5)
    if kind in (DENSE, COLBERT):
        again = load_any(out)
        compare(trip.ours(again), own, 1e-6)
        assert again.method.model_dump().get("similarity") == method.get("similarity", "dot" if kind == DENSE else None)


def test_a_cross_encoder_tells_classes_as_the_run_does(tmp_path: Path, vocabularies: dict[str, Path]) -> None:
    keys = {"loss": "classes", "classes": 3, "max_query_tokens": 40, "max_document_tokens": 40}
    trunk = {**toy.TRUNK, "type_vocab_size": 1}
    trained, out = exported(tmp_path, vocabularies, name="cross_encoder", trunk=trunk, **keys)
    pairs = [(a, b) for a in TEXTS[:3] for b in TEXTS[:3]]
    own = own_scores(trained, pairs)
    assert np.ptp(own, axis=0).min() > 1e-3
    theirs = by_library("CrossEncoder", out).predict(pairs)
    np.testing.assert_allclose(theirs, own, rtol=1e-4, atol=1e-5)
    assert "predicts one of 3 classes" in (out / "README.md").read_text()


@pytest.mark.parametrize("dimensions", [[32, 8, 3], [12, 5]])
def test_numbers_of_dimensions_are_told(tmp_path: Path, vocabularies: dict[str, Path], dimensions: list[int]) -> None:
    keys: dict[str, Any] = {"similarity": "cosine", "pooling": "mean", "dimensions": dimensions}
    trained, out = exported(tmp_path, vocabularies, name="siamese", **LENGTHS, **keys)
    mark = json.loads((out / "deepsiam.json").read_text())
    assert (mark["dimensions"], mark["max_query_tokens"]) == (dimensions, 12)
    assert f"truncate_dim={dimensions[-1]}" in (out / "README.md").read_text()
    assert load_any(out).method.dimensions == tuple(dimensions)  # type: ignore[attr-defined]
    own = own_embeddings(trained, TEXTS)
    model = by_library("SentenceTransformer", out)
    assert (model.max_seq_length, model.truncate_dim) == (24, dimensions[0])
    for number in (dimensions[0], dimensions[-1]):
        model.truncate_dim = number
        theirs = model.encode(TEXTS)
        first = own[:, :number] / np.linalg.norm(own[:, :number], axis=1, keepdims=True)
        np.testing.assert_allclose(model.similarity(theirs, theirs), first @ first.T, atol=1e-5)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_tokenizer_gives_the_trainers_ids(tmp_path: Path, vocabularies: dict[str, Path], kind: str) -> None:
    trained, out = exported(tmp_path, vocabularies, kind=kind, name="siamese", **LENGTHS)
    published = replace(trained, tokenizer=trained.tokenizer.splitting(False))  # of a published folder
    export_encoder(published, tmp_path / "published")
    found = []
    for run, folder in ((trained, out), (published, tmp_path / "published")):
        tokenizer, own = AutoTokenizer.from_pretrained(folder), run.tokenizer
        found.append(tokenizer(TEXTS, truncation=True)["input_ids"])
        assert found[-1] == [[own.cls, *ids[:22].tolist(), own.sep] for ids in own.encode(TEXTS)]
    assert (found[0] != found[1]) is (kind == "wordpiece")  # [MASK] is not one of the other's
    assert (tokenizer.model_max_length, tokenizer.padding_side) == (24, "right")
    assert len(tokenizer(TEXTS[-1])["input_ids"]) > 24  # truncated only on request
    roles = (getattr(tokenizer, f"{name}_token_id") for name in ("pad", "unk", "cls", "sep", "mask"))
    special = Vocabulary(tokenizer.vocab_size, *roles)
    assert special == Vocabulary(*(getattr(trained.tokenizer, field.name) for field in fields(Vocabulary)))
    assert len(tokenizer) == trained.tokenizer.vocab_size


@pytest.mark.parametrize("name", ["seed", "mlm"])
def test_a_pretrained_run_is_a_stock_model_and_its_decoder(
    tmp_path: Path, vocabularies: dict[str, Path], name: str
) -> None:
    keys: dict[str, Any] = {"decoder_layers": 2, "window": 3, "variant": "released"} if name == "seed" else {}
    trained, out = exported(tmp_path, vocabularies, name=name, max_tokens=24, with_decoder=True, **keys)
    model, problems = AutoModel.from_pretrained(out, output_loading_info=True)
    assert not any(problems.values()), problems
    batch = AutoTokenizer.from_pretrained(out)(TEXTS, padding=True, truncation=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        hidden, own = (each(**batch).last_hidden_state[mask] for each in (model.eval(), trained.model.trunk))
    np.testing.assert_allclose(hidden, own, atol=1e-5)
    assert not (out / "modules.json").exists()
    instructions = json.loads((out / "decoder.json").read_text())
    module, kind = instructions["class"].rsplit(".", 1)
    rebuilt = getattr(importlib.import_module(module), kind)(**instructions["method"]).model(model)
    keys_found = rebuilt.load_state_dict(load_file(out / "decoder.safetensors"), strict=False)
    assert not keys_found.unexpected_keys
    assert all(key.startswith("trunk.") for key in keys_found.missing_keys)
    own = trained.model.state_dict()
    torch.testing.assert_close({key: rebuilt.state_dict()[key] for key in own}, own, rtol=0, atol=0)


def code_of(folder: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)


def test_the_card_of_a_cross_thought_encoder_shows_its_embedding(tmp_path: Path, vocabularies: dict[str, Path]) -> None:
    method = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 6, "special_tokens": 3}
    trained, out = exported(tmp_path, vocabularies, **method)
    assert AutoTokenizer.from_pretrained(out).model_max_length == toy.TRUNK["max_position_embeddings"] - 2
    variables: dict[str, torch.Tensor] = {}
    exec("\n".join(code_of(out)), variables)  # as a reader of the README.md would
    t = trained.tokenizer
    ids = torch.tensor([[t.cls, *t.encode(["a text"])[0].tolist(), t.sep]])
    torch.testing.assert_close(
        variables["embedding"], trained.model.embed_documents(ids, ids == ids).vectors[:, 0], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("name", POLY)
def test_the_lines_in_the_card_of_a_poly_encoder_score_as_the_trainer(
    tmp_path: Path, vocabularies: dict[str, Path], name: str
) -> None:
    keys = POLY[name]
    trained, out = exported(tmp_path, vocabularies, name="poly_encoder", m=4, **LENGTHS, **keys)
    model: Any = trained.model
    (code,) = code_of(out)
    *load, score = code.split("\n\n")[:3]
    assert len(score.splitlines()) == 5
    variables: dict[str, Any] = {}
    exec("\n".join(load), variables)
    long, candidates = " ".join(["abc", "de", "fghij", "bad"] * 6), ["gh, ij", "a longer one " * 9]
    for context, (a, b) in (("a context", ("a", "b")), (long, candidates), ("", candidates)):
        exec(score.replace("a context", context).replace('a"', f'{a}"', 1).replace('b"', f'{b}"', 1), variables)
        sides = []
        for side, texts in (("query", [context]), ("document", [a, b])):
            framing = getattr(trained.method, f"{side}_framing")(trained.tokenizer)
            arrays = framing.arrays(trained.tokenizer.encode(texts))
            sides.append({key: torch.from_numpy(array) for key, array in arrays.items()})
        with torch.no_grad():
            expected = model.score(model.embed_queries(**sides[0]), model.embed_documents(**sides[1]))[0]
        torch.testing.assert_close(variables["scores"], expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 1e-3
    assert (out / "candidate" / "model.safetensors").exists() == (keys.get("towers") != 1)
    assert (out / "codes.safetensors").exists() == ("codes" not in keys)


def test_the_files_of_a_colbert_are_those_of_pylate(tmp_path: Path, vocabularies: dict[str, Path]) -> None:
    """What sentence-transformers computes by them: above."""
    trained, out = exported(tmp_path, vocabularies, name="colbert", dimension=16, **LENGTHS)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Dense"]
    settings = json.loads((out / "config_sentence_transformers.json").read_text())
    expected = {"model_type": "ColBERT", "do_query_expansion": True, "attend_to_expansion_tokens": True}
    expected |= {"query_length": 12, "document_length": 24, "similarity_fn_name": "MaxSim"}
    assert settings.items() >= expected.items()
    tokenizer, size = AutoTokenizer.from_pretrained(out), trained.tokenizer.vocab_size
    prefixes = [settings["query_prefix"], settings["document_prefix"]]
    assert tokenizer.convert_tokens_to_ids(prefixes) == [size, size + 1]
    assert len(tokenizer) == size + 2
    assert (
        json.loads((out / "1_Dense" / "config.json").read_text())["in_features"]
        == trained.model.trunk.config.hidden_size
    )


def test_a_colbert_whose_ids_have_gaps_is_refused(tmp_path: Path, vocabularies: dict[str, Path]) -> None:
    content = json.loads(vocabularies["wordpiece"].read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] += 1  # no token has its former id
    (tmp_path / "gap.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="its ids have gaps"):
        exported(tmp_path, {"wordpiece": tmp_path / "gap.json"}, name="colbert")
