"""The weights that a fine-tuning starts from."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.causality import is_causal
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import write_run

METHODS = {
    1: {"name": "seed", "max_tokens": 32},
    3: {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3},
}


def recipe_of(collection: Path, folder: Path, **start: Any) -> FinetuneRecipe:
    """A recipe; `start` sets what it starts from and may replace other values."""
    return build(FinetuneRecipe, toy.finetune_values(folder / "run", collection, **start), "test")


@pytest.mark.parametrize("learned", [1, 3])
def test_special_tokens_are_those_of_the_pre_training(toy_collection: Path, tmp_path: Path, learned: int) -> None:
    """With another number, embedding rows and positions would differ from the trained ones."""
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHODS[learned])
    export_encoder(load_trained(run), tmp_path / "exported")
    for wanted, pretrained in product((1, 2, 3), (run, tmp_path / "exported")):
        recipe = recipe_of(toy_collection, tmp_path, init_from=str(pretrained), method={"special_tokens": wanted})
        if wanted == learned:
            assert finetuning.build(recipe).model.keys.special_tokens == learned
        else:
            with pytest.raises(InputError, match=f"{wanted}, but {pretrained} was trained with {learned}; set"):
                finetuning.build(recipe)


def test_a_new_encoder_needs_no_start(toy_collection: Path, tmp_path: Path) -> None:
    same_start(*(recipe_of(toy_collection, tmp_path, trunk=toy.TRUNK) for _ in range(2)))
    for start in ({}, {"trunk": toy.TRUNK, "init_from": "x"}):
        with pytest.raises(InputError, match="trunk: name a trained encoder in init_from, or describe a new one there"):
            recipe_of(toy_collection, tmp_path, **start)


@pytest.mark.parametrize("random_weights", [False, True])
def test_new_weights_are_those_of_the_seed(toy_collection: Path, tmp_path: Path, random_weights: bool) -> None:
    start: dict[str, Any] = {"trunk": toy.TRUNK}
    if random_weights:
        run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHODS[1])
        start = {"init_from": str(run), "random_weights": True}
    one, other = (
        finetuning.build(recipe_of(toy_collection, tmp_path, seed=seed, **start)).model.state_dict() for seed in (1, 2)
    )
    name = "trunk.encoder.layer.0.output.dense.weight"
    assert not torch.equal(one[name], other[name])


DECODER = {**toy.TRUNK, "hidden_size": 16, "num_hidden_layers": 1}
GROUPED = {**DECODER, "num_key_value_heads": 1, "bos_token_id": 2, "eos_token_id": 3}
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "llama": GROUPED,
    "mistral": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8},
}


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_is_pooled_at_its_last_state_and_refused_with_the_first(
    toy_collection: Path, tmp_path: Path, kind: str, published: bool
) -> None:
    """Whether the recipe describes it or names a folder; the first state is the same for every text."""
    settings = {**DECODERS[kind], "model_type": kind}
    start: dict[str, Any] = {"trunk": settings}
    if published:
        start = {"init_from": str(write_decoder(tmp_path / kind, kind, toy_collection))}
    refused = recipe_of(toy_collection, tmp_path, **start, method={"pooling": "cls"})
    with pytest.raises(InputError, match=rf"^method: the trunk \(model_type '{kind}'\) is causal.*method.pooling=last"):
        finetuning.build(refused)
    job = finetuning.build(recipe_of(toy_collection, tmp_path, **start))
    assert job.recipe.method.pooling == job.model.keys.pooling == "last"  # type: ignore[union-attr]
    assert yaml.safe_load(job.sidecar_files[checkpoint.RECIPE])["method"]["pooling"] == "last"


def write_decoder(folder: Path, kind: str, collection: Path) -> Path:
    """Write a small decoder as a published folder with the collection's tokenizer."""
    tokenizer = tokenizers.load(collection / "tokenizer.json")
    build_trunk({**DECODERS[kind], "model_type": kind, "vocab_size": tokenizer.vocab_size}).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer.path.read_bytes())
    return folder


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_decoder_is_made_bidirectional_and_stays_so(toy_collection: Path, tmp_path: Path, kind: str) -> None:
    start = {"init_from": str(write_decoder(tmp_path / kind, kind, toy_collection)), "bidirectional": True}
    job = finetuning.build(recipe_of(toy_collection, tmp_path, **start, method={"pooling": "cls"}))
    assert not is_causal(job.model.trunk)
    settings = json.loads(job.sidecar_files[checkpoint.TRUNK])
    assert not is_causal(build_trunk(settings))
    random = finetuning.build(recipe_of(toy_collection, tmp_path, **start, random_weights=True))
    assert not is_causal(random.model.trunk)


def test_what_cannot_be_made_bidirectional_is_refused(toy_collection: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", **METHODS[1])
    recipe = recipe_of(toy_collection, tmp_path, init_from=str(run), bidirectional=True)
    with pytest.raises(InputError, match=r"^bidirectional: the trunk \(model_type 'bert'\) is bidirectional already"):
        finetuning.build(recipe)
    with pytest.raises(InputError, match=r"bidirectional needs a decoder in init_from: .* set trunk.is_causal=false"):
        recipe_of(toy_collection, tmp_path, trunk=toy.TRUNK, bidirectional=True)


def same_start(one: FinetuneRecipe, other: FinetuneRecipe) -> set[str]:
    """Check that two recipes start from equal weights; return the names of these."""
    first, second = (finetuning.build(recipe).model.state_dict() for recipe in (one, other))
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=0, atol=0)
    return set(first)


MARKED = {"name": "colbert", "max_query_tokens": 8, "max_document_tokens": 16}


def start_of(tmp_path: Path, kind: str, tokenizer_json: Path) -> Path:
    """What a fine-tuning starts from: a run, an export, or a plain Hugging Face folder."""
    if kind == "folder":
        tokenizer = tokenizers.load(tokenizer_json)
        build_trunk({**toy.TRUNK, "vocab_size": tokenizer.vocab_size}).save_pretrained(tmp_path / kind)
        (tmp_path / kind / "tokenizer.json").write_bytes(tokenizer_json.read_bytes())
        return tmp_path / kind
    run = write_run(tmp_path / "run", tokenizer_json, **{**METHODS, "export": METHODS[1], "colbert": MARKED}[kind])
    if kind == "export":
        export_encoder(load_trained(run), tmp_path / kind)
        return tmp_path / kind
    return run


CROSS = {"name": "cross_encoder", "max_query_tokens": 8, "max_document_tokens": 16, "negatives_per_query": 1}


@pytest.mark.parametrize(("own", "head"), [(METHODS[1], ""), (MARKED, "projection.weight"), (CROSS, "head.3.weight")])
def test_an_export_is_fine_tuned_like_its_run(
    toy_collection: Path, tmp_path: Path, own: dict[str, object], head: str
) -> None:
    """With the head of the run's model, where the fine-tuned one has it too."""
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **own)
    export_encoder(load_trained(run), tmp_path / "export")
    for method in [own, {}] if head else [{}]:
        starts = (str(run), str(tmp_path / "export"))
        names = same_start(*(recipe_of(toy_collection, tmp_path, init_from=start, method=method) for start in starts))
        assert (head in names) == bool(method)


@pytest.mark.parametrize("kind", [1, "export", "folder", "colbert"])
def test_markers_are_drawn_where_an_encoder_has_none(toy_collection: Path, tmp_path: Path, kind: str) -> None:
    tokenizer_json = toy_collection / "tokenizer.json"
    start = start_of(tmp_path, kind, tokenizer_json)
    recipe = recipe_of(toy_collection, tmp_path, init_from=str(start), method=MARKED)
    trunk, again = (finetuning.build(recipe).model.trunk for _ in range(2))
    rows, known = (each.get_input_embeddings().weight for each in (trunk, load_encoder_of(start, tokenizer_json)))
    size = tokenizers.load(tokenizer_json).vocab_size
    assert trunk.config.vocab_size == len(rows) == size + 2
    assert torch.equal(rows[: len(known)], known)  # a ColBERT run already has the markers
    assert len(known) == (size + 2 if kind == "colbert" else size)
    assert not torch.equal(rows[size], rows[size + 1])
    assert torch.equal(rows, again.get_input_embeddings().weight)


def load_encoder_of(start: Path, tokenizer_json: Path) -> PreTrainedModel:
    return load_encoder(Folder(start), tokenizers.load(tokenizer_json)).trunk


@pytest.mark.parametrize("name", ["colbert", "poly_encoder"])
def test_an_encoder_of_several_special_tokens_is_refused_where_they_are_not_read(
    toy_collection: Path, tmp_path: Path, name: str
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHODS[3])  # as many rows as ColBERT adds
    method = {**MARKED, "name": name, **({"m": 4} if name == "poly_encoder" else {})}
    recipe = recipe_of(toy_collection, tmp_path, init_from=str(run), method=method)
    with pytest.raises(InputError, match=f"^init_from: .*run was trained with 3 special tokens, and .*{name} has"):
        finetuning.build(recipe)


def test_the_marker_is_one_of_the_tokens_of_a_text(toy_collection: Path, tmp_path: Path) -> None:
    for most in (64, 65):  # the trunk has 64 positions
        recipe = recipe_of(toy_collection, tmp_path, trunk=toy.TRUNK, method={**MARKED, "max_query_tokens": most})
        if most == 64:
            model = finetuning.build(recipe).model
            arrays = recipe.method.query_framing(tokenizers.load(toy_collection / "tokenizer.json")).arrays(
                [np.arange(5, 205)]
            )
            assert arrays["ids"].shape == (1, 64)
            assert model.embed_queries(*map(torch.from_numpy, arrays.values())).vectors.shape == (1, 64, 128)
        else:
            with pytest.raises(InputError, match="method.max_query_tokens: 65 tokens are more than the trunk's 64"):
                finetuning.build(recipe)
