"""A published ColBERT computes what sentence-transformers' MultiVectorEncoder computes, and a run starts with it."""

import json
import re
import string
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor
from transformers import AutoModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.config import resize_embeddings
from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import left_out
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import copy_heads, load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import start_notes, with_keys_from_folder
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.interop.published_folders import by_library, change, encoder_of, write, write_encoder
from tests.trainer.runs import write_run

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
        weights = {f"bert.{name}": value for name, value in AutoModel.from_pretrained(folder).state_dict().items()}
        save_file({**weights, "linear.weight": PROJECTION}, folder / "model.safetensors", {"format": "pt"})
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
    tokens = loaded.tokenizer.encode(TEXTS)
    sides = [encoder_of(loaded, side).vectors(tokens) for side in ("query", "document")]
    return [[vectors.of(row) for row in vectors.rows] for vectors in sides]


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
    folder = write_colbert(encoder, tmp_path / "colbert", FOLDERS[name])
    model = by_library("MultiVectorEncoder", folder)
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias": True}, "1_Dense/config.json: bias: True: only a linear layer is supported"),
        ({"bias": False, "activation_function": "nn.Tanh"}, "activation_function: 'nn.Tanh'"),
        ({**LINEAR, "use_residual": True}, "use_residual: True"),
        ({}, "bias: True"),  # the libraries' defaults
        ({"bias": False}, "activation_function: 'torch.nn.modules.activation.Tanh'"),
    ],
)
def test_a_projection_that_does_more_is_refused(
    encoder: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    folder = write_colbert(encoder, tmp_path / "colbert", {SETTINGS: PYLATE, "1_Dense/config.json": settings})
    with pytest.raises(InputError, match=message):
        load_encoder(Folder(folder), tokenizers.load(folder))


@pytest.mark.parametrize("prompts", [{"query": "find: ", "document": ""}, {"query": "[Q] ", "document": "text: "}])
def test_prompts_that_begin_with_no_marker_are_left_out_in_a_line(
    encoder: Path, tmp_path: Path, prompts: dict[str, str]
) -> None:
    files = {SETTINGS: {**NATIVE, "prompts": prompts}, BERT: {}, MASK: {}}
    folder = write_colbert(encoder, tmp_path / "colbert", files)
    assert left_out(Folder(folder), "ColBERT") == [f"{folder}: training starts without its prompts ({prompts})"]


def recipe(start: Path, collection: Path, **keys: Any) -> FinetuneRecipe:
    values = toy.finetune_values(start / "run", collection, init_from=str(start))
    return build(FinetuneRecipe, {**values, "method": {"name": "colbert", **LENGTHS}, **keys}, "test")


def test_a_start_takes_the_folder_s_keys_and_says_which_it_replaces(encoder: Path, tmp_path: Path) -> None:
    folder = write_colbert(encoder, tmp_path / "colbert", FOLDERS["texts after the markers"])
    taken = {"expansion": "unattended", "max_query_tokens": 12, "query_prompt": " find: "}
    for keys, notes in (({}, 0), ({"expansion": "none", "max_query_tokens": 32}, 2)):
        method: Any = with_keys_from_folder(recipe(folder, tmp_path, method={"name": "colbert", **keys})).method
        assert {key: getattr(method, key) for key in taken} == {**taken, **keys}
        lines = start_notes(Folder(folder), method)
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
    tokenizer, method = tokenizers.load(folder), ColbertConfig(name="colbert", dimension=6, max_query_tokens=12)
    start = load_encoder(Folder(folder), tokenizer)
    resize_embeddings(method, start.trunk, tokenizer, start.marker_rows)
    copy_heads(start, build_model(method, start.trunk), method)
    said = capsys.readouterr().out
    assert re.findall(rf"^{folder} was trained with method\.(\w+)=.*, and this run trains with ", said, re.M) == keys


def markers_of(model: Any, tokenizer_json: Path) -> Tensor:
    """The rows that the model reads as markers."""
    tokenizer = tokenizers.load(tokenizer_json)
    markers = [getattr(model.keys, f"{side}_framing")(tokenizer).marker for side in ("query", "document")]
    rows: Tensor = model.trunk.get_input_embeddings().weight[markers]
    return rows.detach()


def write_start(folder: Path, tokenizer_json: Path, tokens: tuple[str, str], files: dict[str, dict[str, Any]]) -> Path:
    """Write a ColBERT whose markers are these tokens, with files of settings."""
    backend, encoder = Tokenizer.from_file(str(tokenizer_json)), folder.with_name("encoder")
    backend.add_tokens([AddedToken(token, normalized=False) for token in tokens if backend.token_to_id(token) is None])
    build_trunk({**toy.TRUNK, "vocab_size": backend.get_vocab_size()}).save_pretrained(encoder)
    backend.save(str(encoder / "tokenizer.json"))
    return write_colbert(encoder, folder, files)


LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
NEW = "the markers of queries and documents are new, drawn at random"
IN_VOCABULARY = ("a", "b")  # tokens that the tokenizer has anyway, as BERT's has [unused0] and [unused1]
ADDED, PREFIXES = ("[Q] ", "[D] "), {"query_prefix": "[Q] ", "document_prefix": "[D] "}
STARTS: dict[str, tuple[tuple[str, str], dict[str, dict[str, Any]]]] = {
    "added": (ADDED, {SETTINGS: PREFIXES}),
    "in the vocabulary": (IN_VOCABULARY, {SETTINGS: {"query_prefix": "a", "document_prefix": "b"}}),
    "prompts": (("[Q]", "[D]"), {SETTINGS: {"prompts": {"query": "[Q] ", "document": "[D] "}}}),
    "Stanford": (IN_VOCABULARY, {"artifact.metadata": {"query_token_id": "a", "doc_token_id": "b"}}),
}


PREPARED = [  # whether the data were prepared with its tokenizer, or with the one that lacks its markers
    *(("added", True, "all"), ("added", False, "all_but_embeddings")),
    *(("in the vocabulary", True, "all_but_embeddings"), ("in the vocabulary", False, "all")),
    *(("prompts", True, "all"), ("prompts", False, "all_but_embeddings")),
    *(("Stanford", True, "all_but_embeddings"), ("Stanford", False, "all")),
]


@pytest.mark.parametrize(("name", "own_tokenizer", "trained"), PREPARED)
def test_markers_and_projection_are_those_of_the_folder(
    tmp_path: Path,
    toy_collection: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    own_tokenizer: bool,
    trained: str,
) -> None:
    tokens, files = STARTS[name]
    folder = write_start(tmp_path / "start", toy_collection / "tokenizer.json", tokens, files)
    known = load_file(tmp_path / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"]
    vocabulary, collection = tokenizers.load(folder).vocabulary(), toy_collection
    if own_tokenizer:
        collection = toy.write_collection(tmp_path / "collection", folder / "tokenizer.json", count=30)
    model = finetuning.build(recipe(folder, collection, optimizer={"lr": 1e-3, "train": trained})).model
    own = markers_of(model, collection / "tokenizer.json")
    assert torch.equal(own, known[[vocabulary[token] for token in tokens]])
    assert torch.equal(model.projection.weight, PROJECTION)
    said = capsys.readouterr().out
    assert "1 of the 1 head weights\nthe markers of queries and documents are those of the start" in said


def test_an_export_may_give_the_tokenizer_too(tmp_path: Path, toy_collection: Path) -> None:
    tokenizer_json, method = toy_collection / "tokenizer.json", {"name": "colbert", **LENGTHS}
    for number, marker in enumerate(("[query marker]", "[query marker 2]")):  # the second's data have the first's
        run, out = tmp_path / f"run{number}", tmp_path / f"out{number}"
        trained = load_trained(write_run(run, tokenizer_json, seed=number, **method))
        export_encoder(trained, out)
        settings = json.loads((out / "config_sentence_transformers.json").read_text())
        assert settings["query_prefix"] == marker
        if not number:
            collection = toy.write_collection(tmp_path / "collection", out / "tokenizer.json", count=30)
        again = finetuning.build(recipe(out, collection)).model
        own = markers_of(trained.model, tokenizer_json)
        tokenizer_json = collection / "tokenizer.json"
        assert torch.equal(markers_of(again, tokenizer_json), own)


@pytest.mark.parametrize(
    ("settings", "trained", "line"),
    [
        ({}, "all", NEW),
        ({"query_prefix": "", "document_prefix": ""}, "all", NEW),
        ({"prompts": {"query": "search for: ", "document": ""}}, "all", NEW),
        (PREFIXES, 1, f"{NEW}, and stay so: optimizer.train=1 does not train the token embedding"),
    ],
)
def test_new_markers_are_said(
    tmp_path: Path,
    toy_collection: Path,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    trained: Any,
    line: str,
) -> None:
    folder = write_start(tmp_path / "start", toy_collection / "tokenizer.json", IN_VOCABULARY, {SETTINGS: settings})
    finetuning.build(recipe(folder, toy_collection, optimizer={"lr": 1e-3, "train": trained}))
    assert line in capsys.readouterr().out.splitlines()


def test_a_special_tokens_rows_follow_those_of_its_own_tokenizer(tmp_path: Path, toy_collection: Path) -> None:
    """The encoder was trained with a tokenizer that has one more added token than that of the data."""
    backend = Tokenizer.from_file(str(toy_collection / "tokenizer.json"))
    backend.add_tokens(["[more]"])
    backend.save(str(tmp_path / "more.json"))
    keys = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
    run = write_run(tmp_path / "run", tmp_path / "more.json", **keys)
    trained = load_trained(run)
    export_encoder(trained, tmp_path / "export")
    size, learned = trained.tokenizer.vocab_size, trained.model.trunk.get_input_embeddings().weight
    for start in (run, tmp_path / "export"):
        given = recipe(start, toy_collection, method={"name": "siamese", "special_tokens": 3, **LENGTHS})
        rows = finetuning.build(given).model.trunk.get_input_embeddings().weight
        assert torch.equal(rows, torch.cat([learned[: size - 1], learned[size:]]))


def test_a_table_without_the_markers_rows_is_refused(tmp_path: Path, toy_collection: Path) -> None:
    folder = write_start(tmp_path / "start", toy_collection / "tokenizer.json", ADDED, {SETTINGS: PREFIXES})
    tokenizer = tokenizers.load(toy_collection / "tokenizer.json")
    build_trunk({**toy.TRUNK, "vocab_size": tokenizer.vocab_size}).save_pretrained(folder)
    message = r"token embeddings are fewer than the [\d,]+ tokens of its tokenizer.json and"
    with pytest.raises(InputError, match=message):
        load_encoder(Folder(folder), tokenizer)
