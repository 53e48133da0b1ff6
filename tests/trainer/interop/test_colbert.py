"""What was trained of a ColBERT is kept where another run starts from its folder: markers, projection."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import build_trunk
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.interop.test_colbert_settings import LINEAR, PROJECTION, SETTINGS, write_colbert
from tests.trainer.runs import write_run

METHOD = {"name": "colbert", "max_query_tokens": 8, "max_document_tokens": 16}
NEW = "the markers of queries and documents are new, drawn at random"
IN_VOCABULARY = ("a", "b")  # tokens that the tokenizer has anyway, as BERT's has [unused0] and [unused1]


def job(start: Path, collection: Path, **keys: Any) -> Job:
    given = {"init_from": str(start), "method": METHOD, **keys}
    values = toy.finetune_values(start / "run", collection, **given)
    return finetuning.build(build(FinetuneRecipe, values, "test"))


def markers_of(model: Any, tokenizer_json: Path) -> Tensor:
    """The rows that the model reads as markers."""
    framings = (
        getattr(model.keys, f"{side}_framing")(tokenizers.load(tokenizer_json)) for side in ("query", "document")
    )
    rows: Tensor = model.trunk.get_input_embeddings().weight[[framing.marker for framing in framings]]
    return rows.detach()


def write_folder(folder: Path, tokenizer_json: Path, tokens: tuple[str, str], files: dict[str, dict[str, Any]]) -> Path:
    """Write a ColBERT whose markers are these tokens, with files of settings."""
    backend, encoder = Tokenizer.from_file(str(tokenizer_json)), folder.with_name("encoder")
    backend.add_tokens([AddedToken(token, normalized=False) for token in tokens if backend.token_to_id(token) is None])
    build_trunk({**toy.TRUNK, "vocab_size": backend.get_vocab_size()}).save_pretrained(encoder)
    backend.save(str(encoder / "tokenizer.json"))
    return write_colbert(encoder, folder, files)


PYLATE = ("[Q] ", "[D] ")
PREFIXES = {"query_prefix": "[Q] ", "document_prefix": "[D] "}
FOLDERS: dict[str, tuple[tuple[str, str], dict[str, dict[str, Any]]]] = {
    "added": (PYLATE, {SETTINGS: PREFIXES}),
    "in the vocabulary": (IN_VOCABULARY, {SETTINGS: {"query_prefix": "a", "document_prefix": "b"}}),
    "prompts": (("[Q]", "[D]"), {SETTINGS: {"prompts": {"query": "[Q] ", "document": "[D] "}}}),
    "Stanford": (IN_VOCABULARY, {"artifact.metadata": {"query_token_id": "a", "doc_token_id": "b"}}),
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("prepared_with", ["its tokenizer", "the original one"])
@pytest.mark.parametrize("trained", ["all", "all_but_embeddings"])
def test_markers_and_projection_are_those_of_the_folder(
    tmp_path: Path,
    toy_collection: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    prepared_with: str,
    trained: str,
) -> None:
    tokens, files = FOLDERS[name]
    folder = write_folder(tmp_path / "start", toy_collection / "tokenizer.json", tokens, files)
    known = load_file(tmp_path / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"]
    vocabulary = tokenizers.load(folder / "tokenizer.json").vocabulary()
    collection = toy_collection
    if prepared_with == "its tokenizer":
        collection = toy.write_collection(tmp_path / "collection", folder / "tokenizer.json")
    made = job(folder, collection, optimizer={"lr": 1e-3, "train": trained}).model
    own = markers_of(made, collection / "tokenizer.json")
    assert torch.equal(own, known[[vocabulary[token] for token in tokens]])
    assert torch.equal(made.projection.weight, PROJECTION)
    said = capsys.readouterr().out
    assert "1 of the 1 head weights\nthe markers of queries and documents are those of the start" in said


def test_an_export_may_give_the_tokenizer_too(tmp_path: Path, toy_collection: Path) -> None:
    tokenizer_json = toy_collection / "tokenizer.json"
    run = write_run(tmp_path / "run", tokenizer_json, **METHOD)
    export_encoder(load_trained(run), tmp_path / "export")
    collection = toy.write_collection(tmp_path / "collection", tmp_path / "export" / "tokenizer.json")
    own = markers_of(load_trained(run).model, tokenizer_json)
    again = job(tmp_path / "export", collection).model
    assert torch.equal(markers_of(again, collection / "tokenizer.json"), own)
    # a run on these data has markers of other names, and its export likewise keeps them
    second = load_trained(write_run(tmp_path / "second", collection / "tokenizer.json", seed=1, **METHOD))
    export_encoder(second, tmp_path / "again")
    settings = json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text())
    assert settings["query_prefix"] == "[query marker 2]"
    third = job(tmp_path / "again", collection).model
    assert torch.equal(
        markers_of(third, collection / "tokenizer.json"), markers_of(second.model, second.tokenizer.path)
    )


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
    folder = write_folder(tmp_path / "start", toy_collection / "tokenizer.json", IN_VOCABULARY, {SETTINGS: settings})
    job(folder, toy_collection, optimizer={"lr": 1e-3, "train": trained})
    assert line in capsys.readouterr().out.splitlines()


def test_a_special_tokens_rows_follow_those_of_its_own_tokenizer(tmp_path: Path, toy_collection: Path) -> None:
    """The encoder was trained with a tokenizer that has one more added token than that of the data."""
    backend = Tokenizer.from_file(str(toy_collection / "tokenizer.json"))
    backend.add_tokens(["[more]"])
    backend.save(str(tmp_path / "more.json"))
    keys = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
    run = write_run(tmp_path / "run", tmp_path / "more.json", **keys)
    export_encoder(load_trained(run), tmp_path / "export")
    size = tokenizers.load(tmp_path / "more.json").vocab_size
    learned = load_trained(run).model.trunk.get_input_embeddings().weight
    for start in (run, tmp_path / "export"):
        method = {"name": "siamese", "special_tokens": 3, "max_query_tokens": 8, "max_document_tokens": 16}
        rows = job(start, toy_collection, method=method).model.trunk.get_input_embeddings().weight
        assert torch.equal(rows, torch.cat([learned[: size - 1], learned[size:]]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias": True}, "1_Dense/config.json: bias: True: only a linear layer is supported"),
        ({"bias": False, "activation_function": "torch.nn.modules.activation.Tanh"}, "activation_function: 'torch"),
        ({**LINEAR, "use_residual": True}, "use_residual: True"),
        ({}, "bias: True"),  # the libraries' defaults
        ({"bias": False}, "activation_function: 'torch.nn.modules.activation.Tanh'"),
    ],
)
def test_a_projection_that_does_more_is_refused(
    tmp_path: Path, toy_collection: Path, settings: dict[str, Any], message: str
) -> None:
    folder = write_folder(tmp_path / "start", toy_collection / "tokenizer.json", PYLATE, {SETTINGS: PREFIXES})
    (folder / "1_Dense" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=message):
        job(folder, toy_collection)


def test_a_table_without_the_markers_rows_is_refused(tmp_path: Path, toy_collection: Path) -> None:
    folder = write_folder(tmp_path / "start", toy_collection / "tokenizer.json", PYLATE, {SETTINGS: PREFIXES})
    tokenizer = tokenizers.load(toy_collection / "tokenizer.json")
    build_trunk({**toy.TRUNK, "vocab_size": tokenizer.vocab_size}).save_pretrained(folder)
    with pytest.raises(
        InputError, match=r"token embeddings are fewer than the [\d,]+ tokens of its tokenizer.json and"
    ):
        job(folder, toy_collection)
