"""A published ColBERT computes what sentence-transformers' MultiVectorEncoder computes, whatever its folder says."""

import re
import string
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from transformers import AutoModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.config import resize_embeddings
from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import left_out
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.init_from import copy_heads, load_encoder
from deepsiam.trainer.training.checkpoints.start_keys import start_notes, with_keys_from_folder
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests.trainer.interop.published_folders import change, write, write_encoder

TEXTS = ["bread ship", "ship, sail. - a!", "", "sail the ship " * 9, "1 (one) 漢字 bread"]
SETTINGS, BERT, MASK = "config_sentence_transformers.json", "sentence_bert_config.json", "2_MultiVectorMask/config.json"
LINEAR = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
PYLATE = {"model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] "}
NATIVE = {"model_type": "MultiVectorEncoder", "prompts": {"query": "[Q] ", "document": "[D] "}}
FIXED = {"strategy": "fixed", "length": 12}
PROJECTION = torch.randn(6, 32, generator=torch.Generator().manual_seed(3))
STANFORD = {"query_token_id": "[Q]", "doc_token_id": "[D]", "query_maxlen": 10, "doc_maxlen": 20}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return add_markers(write_encoder(tmp_path_factory.mktemp("encoder")))


def add_markers(folder: Path) -> Path:
    """Give an encoder and its tokenizer two markers."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("[Q]", "[D]")])
    backend.save(str(folder / "tokenizer.json"))
    model = AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(backend.get_vocab_size(), mean_resizing=False)
    model.save_pretrained(folder)
    return folder


def write_colbert(encoder: Path, folder: Path, files: dict[str, dict[str, Any]]) -> Path:
    """Write a ColBERT with these files of settings: the library's, PyLate's or, with artifact.metadata, Stanford's."""
    copytree(encoder, folder)
    if "artifact.metadata" in files:
        encoder_weights = {
            f"bert.{name}": value for name, value in AutoModel.from_pretrained(folder).state_dict().items()
        }
        save_file({**encoder_weights, "linear.weight": PROJECTION}, folder / "model.safetensors", {"format": "pt"})
        change(folder / "config.json", {"architectures": ["HF_ColBERT"]})
    else:
        kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
        if MASK in files:
            place = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
            kinds |= {"2_MultiVectorMask": place, "3_Normalize": "sentence_transformers.models.Normalize"}
            write(folder / "3_Normalize/config.json", {"module_input_name": "token_embeddings"})
        steps = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(kinds.items())]
        write(folder / "modules.json", steps)
        write(folder / "1_Dense/config.json", {"in_features": 32, "out_features": 6, **LINEAR})
        save_file({"linear.weight": PROJECTION}, folder / "1_Dense/model.safetensors")
    for name, keys in files.items():
        write(folder / name, keys)
    return folder


def own_vectors(loaded: LoadedModel) -> list[list[np.ndarray]]:
    """The vectors of each text as a query, and as a document."""
    sides = []
    for side, embed in (("query", "embed_queries"), ("document", "embed_documents")):
        framing = getattr(loaded.method, f"{side}_framing")(loaded.tokenizer)
        vectors = TextEncoder(getattr(loaded.model, embed), framing).vectors(loaded.tokenizer.encode(TEXTS))
        sides.append([vectors.of(row) for row in vectors.rows])
    return sides


FOLDERS: dict[str, dict[str, dict[str, Any]]] = {
    "attended": {
        SETTINGS: NATIVE,
        BERT: {"query_expansion": {**FIXED, "attend": True}},
        MASK: {"skiplist_words": [","]},
    },
    "not attended": {SETTINGS: NATIVE, BERT: {"query_expansion": FIXED}, MASK: {"skiplist_words": [".", "-", "?!"]}},
    "no expansion": {SETTINGS: NATIVE, BERT: {"query_length": 9, "document_length": 15}, MASK: {}},
    "expansion of null": {SETTINGS: NATIVE, BERT: {"query_expansion": None}, MASK: {"skiplist_words": ["ship"]}},
    "texts after the markers": {
        SETTINGS: {**NATIVE, "prompts": {"query": "[Q] find: ", "document": "[D] text "}},
        BERT: {"query_expansion": FIXED, "max_seq_length": 18},
        MASK: {"skiplist_words": list(string.punctuation)},
    },
    "PyLate": {SETTINGS: PYLATE, BERT: {}},
    "PyLate, not expanded": {SETTINGS: {**PYLATE, "do_query_expansion": False, "query_length": 8}, BERT: {}},
    "PyLate, attended": {
        SETTINGS: {**PYLATE, "attend_to_expansion_tokens": True, "query_length": 14, "document_length": 16},
        BERT: {},
    },
    "PyLate, own skip list": {SETTINGS: {**PYLATE, "skiplist_words": ["a", "("], "query_length": 10}, BERT: {}},
    "PyLate, none skipped": {
        SETTINGS: {**PYLATE, "skiplist_words": [], "prompts": {"query": "[Q] find ", "document": "text: "}},
        BERT: {},
    },
    "Stanford": {"artifact.metadata": STANFORD},
    "Stanford, attended": {"artifact.metadata": {**STANFORD, "attend_to_mask_tokens": True, "mask_punctuation": False}},
}


@pytest.mark.parametrize("name", FOLDERS)
def test_its_vectors_are_the_library_s(encoder: Path, tmp_path: Path, name: str) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = write_colbert(encoder, tmp_path / "colbert", FOLDERS[name])
    model = library.MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)
    for own, theirs in zip(
        own_vectors(load_any(folder)), (model.encode_query(TEXTS), model.encode_document(TEXTS)), strict=True
    ):
        assert [len(vectors) for vectors in own] == [len(vectors) for vectors in theirs]
        for one, other in zip(own, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


REFUSED = [
    ({SETTINGS: NATIVE, BERT: {"query_expansion": {"strategy": "min", "length": 8}}, MASK: {}}, "query_expansion is"),
    ({SETTINGS: NATIVE, BERT: {"query_expansion": {**FIXED, "token": "a"}}, MASK: {}}, "query_expansion is"),
    ({SETTINGS: NATIVE, BERT: {"query_expansion": {"strategy": "fixed"}}, MASK: {}}, "filled up to None tokens"),
    ({SETTINGS: NATIVE, BERT: {}, MASK: {"skiplist_tasks": ["query"]}}, "skiplist_tasks is"),
    ({SETTINGS: NATIVE, BERT: {}, MASK: {"keep_only_token_ids": [7]}}, "keep_only_token_ids is"),
    ({SETTINGS: NATIVE, BERT: {}, MASK: {"skiplist_words": ","}}, "skiplist_words is ',', not a list"),
    ({SETTINGS: NATIVE, BERT: {}}, "has no Normalize module"),
    ({SETTINGS: {**NATIVE, "similarity_fn_name": "MeanMaxSim"}, BERT: {}, MASK: {}}, "similarity_fn_name is"),
    ({SETTINGS: {**NATIVE, "prompts": {"query": "[Q] "}}, BERT: {}, MASK: {}}, "no token marks queries and documents"),
    ({SETTINGS: {**PYLATE, "chunks": 2}, BERT: {}}, "chunks is not a known key"),
    ({"artifact.metadata": {**STANFORD, "similarity": "l2"}}, "artifact.metadata: similarity is 'l2'"),
]


@pytest.mark.parametrize(("files", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_would_change_its_vectors_is_refused(
    encoder: Path, tmp_path: Path, files: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_any(write_colbert(encoder, tmp_path / "colbert", files))


@pytest.mark.parametrize("prompts", [{"query": "find: ", "document": ""}, {"query": "[Q] ", "document": "text: "}])
def test_prompts_that_begin_with_no_marker_are_left_out_in_a_line(
    encoder: Path, tmp_path: Path, prompts: dict[str, str]
) -> None:
    files = {SETTINGS: {**NATIVE, "prompts": prompts}, BERT: {}, MASK: {}}
    folder = write_colbert(encoder, tmp_path / "colbert", files)
    assert left_out(Folder(folder), "ColBERT") == [f"{folder}: training starts without its prompts ({prompts})"]


def test_a_start_takes_the_folder_s_keys_and_says_which_it_replaces(encoder: Path, tmp_path: Path) -> None:
    folder = write_colbert(encoder, tmp_path / "colbert", FOLDERS["texts after the markers"])
    values = {"run": "run", "seed": 1, "steps": 1, "init_from": str(folder), "data": {"collection": "none"}}
    values |= {"batch": {"size": 2, "micro": 2}, "optimizer": {"lr": 1e-3}}
    for keys, notes in (({}, 0), ({"expansion": "none", "max_query_tokens": 32}, 2)):
        recipe = build(FinetuneRecipe, {**values, "method": {"name": "colbert", **keys}}, "test")
        method = with_keys_from_folder(recipe).method
        lines = start_notes(Folder(folder), method)
        assert isinstance(method, ColbertConfig)
        expected = {"expansion": "unattended", "max_query_tokens": 12, "query_prompt": " find: ", **keys}
        assert {key: getattr(method, key) for key in expected} == expected
        assert [" was trained with " in line for line in lines] == [True] * notes + [False]
        assert len(method.skipped(tokenizers.load(folder))) == len(string.punctuation)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("attended", ["skip_list"]),
        ("no expansion", ["expansion", "skip_list"]),
        ("texts after the markers", ["expansion", "skip_list", "query_prompt", "document_prompt"]),
    ],
)
def test_a_model_built_without_a_recipe_says_what_it_leaves_out(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, keys: list[str]
) -> None:
    folder = write_colbert(encoder, tmp_path / "colbert", FOLDERS[name])
    tokenizer = tokenizers.load(folder / "tokenizer.json")
    start, method = (
        load_encoder(Folder(folder), tokenizer),
        ColbertConfig(name="colbert", dimension=6, max_query_tokens=12),
    )
    resize_embeddings(method, start.trunk, tokenizer, start.marker_rows)
    copy_heads(start, build_model(method, start.trunk), method)
    said = capsys.readouterr().out
    assert re.findall(rf"^{folder} was trained with method\.(\w+)=.*, and this run trains with ", said, re.M) == keys
