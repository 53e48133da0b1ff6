"""The base of a run's adapters: loaded with them, and refused if it is missing or has changed."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.causality import is_causal
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.jobs import pretraining
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.runs import STEP, write_adapters, write_run

pytest.importorskip("peft")  # an extra

LORA = {"rank": 4, "targets": ["query", "dense"]}


@pytest.fixture
def start(toy_collection: Path, tmp_path: Path) -> Path:
    """An exported encoder."""
    run = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    export_encoder(load_trained(run), tmp_path / "start")
    return tmp_path / "start"


@pytest.fixture
def run(toy_collection: Path, start: Path, tmp_path: Path) -> Path:
    """A run of adapters beside that encoder."""
    return write_adapters(tmp_path / "run", toy_collection, start, LORA)


def vectors(run: Path) -> torch.Tensor:
    ids, mask = torch.arange(5, 29).view(3, 8), torch.ones(3, 8, dtype=torch.bool)
    with torch.no_grad():
        vectors: torch.Tensor = load_trained(run).model.embed_documents(ids, mask).vectors  # type: ignore[operator]
    return vectors


def test_adapters_are_merged_into_what_the_base_has(start: Path, run: Path) -> None:
    own = load_file(checkpoint.folder(run, STEP) / checkpoint.WEIGHTS)
    base, merged = load_file(start / "model.safetensors"), dict(load_trained(run).model.trunk.named_parameters())
    for name, parameter in merged.items():
        a, b = (own.get(f"trunk.{name.removesuffix('.weight')}.lora_{x}.default.weight") for x in "AB")
        assert (a is None) == (b is None) == (not name.endswith(("query.weight", "dense.weight")))
        expected = base[name] if a is None or b is None else base[name] + b @ a * (32 / 4)
        torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-5)


def test_adapters_of_a_decoder_that_was_made_bidirectional_find_it_so(toy_collection: Path, tmp_path: Path) -> None:
    decoder = {**toy.TRUNK, "model_type": "llama", "num_key_value_heads": 1, "bos_token_id": 2, "eos_token_id": 3}
    keys = {"name": "siamese", "pooling": "last"}
    base = write_run(tmp_path / "base", toy_collection / "tokenizer.json", trunk=decoder, **keys)
    changes = {"bidirectional": True, "method": {"pooling": "mean"}}
    run = write_adapters(tmp_path / "run", toy_collection, base, {"rank": 2, "targets": ["q_proj"]}, **changes)
    assert is_causal(load_trained(base).model.trunk)
    trained = load_trained(run)
    assert not is_causal(trained.model.trunk)
    with pytest.raises(InputError, match="adapters alone cannot make a decoder bidirectional"):
        export_encoder(trained, tmp_path / "out", form="adapters")


@pytest.mark.parametrize("damage", ["missing", "changed", "configured"])
def test_another_base_is_refused_in_one_line(start: Path, run: Path, damage: str) -> None:
    weights = load_file(start / "model.safetensors")
    if damage == "missing":
        shutil.rmtree(start)
    elif damage == "changed":
        weights["encoder.layer.0.output.dense.bias"][0] += 1e-3
        save_file(weights, start / "model.safetensors")
    else:
        (start / "config.json").write_text((start / "config.json").read_text().replace("gelu", "relu"))
    said = "is missing, and a run's adapters need this encoder" if damage == "missing" else "has changed since adapters"
    with pytest.raises(InputError, match=f"^{start}: {said}"):
        load_trained(run)


def test_the_newest_checkpoint_of_a_run_is_the_base_and_stays_it(toy_collection: Path, tmp_path: Path) -> None:
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    run = write_adapters(tmp_path / "run", toy_collection, start, LORA)
    before = vectors(run)
    shutil.copytree(checkpoint.folder(start, STEP), checkpoint.folder(start, STEP + 1))
    assert vectors(run).equal(before)
    weights = checkpoint.folder(start, STEP) / checkpoint.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(InputError, match=r"weights.safetensors is damaged"):
        vectors(run)


def test_a_run_with_adapters_is_a_start_like_any_other(toy_collection: Path, run: Path, tmp_path: Path) -> None:
    encoder = load_encoder(Folder(run), tokenizers.load(toy_collection / "tokenizer.json"))
    assert all(parameter.requires_grad for parameter in encoder.trunk.parameters())
    second = write_adapters(tmp_path / "second", toy_collection, run, {"rank": 2})
    merged, layer = load_trained(run).model.trunk, "encoder.layer.1.output.dense.weight"
    assert load_trained(second).model.trunk.get_parameter(layer).equal(merged.get_parameter(layer))
    assert not vectors(second).allclose(vectors(run), atol=1e-3)


def test_tokens_that_a_method_adds_are_in_the_checkpoint(toy_collection: Path, start: Path, tmp_path: Path) -> None:
    keys = {"name": "colbert", "dimension": 8}
    run = write_adapters(tmp_path / "run", toy_collection, start, LORA, method=keys)
    own = load_file(checkpoint.folder(run, STEP) / checkpoint.WEIGHTS)
    table = own.pop("trunk.embeddings.word_embeddings.weight")
    assert len(table) == tokenizers.load(toy_collection / "tokenizer.json").vocab_size + 2
    assert load_trained(run).model.trunk.get_input_embeddings().weight.equal(table)
    assert all("lora_" in name or name.startswith("projection.") for name in own)


def test_what_cannot_have_adapters_is_refused(toy_collection: Path, shards: Path, start: Path, tmp_path: Path) -> None:
    for name, more in {"querry": " of a bert: choose from dense, key, query", "LayerNorm": ""}.items():
        with pytest.raises(InputError, match=f"^optimizer.train: lora.targets: '{name}' is no linear layer{more}"):
            write_adapters(tmp_path / "run", toy_collection, start, {"targets": [name]})
    frozen = {"name": "seed", "max_tokens": 32, "decoder_layers": 1, "freeze_encoder": True}
    optimizer = {"lr": 1e-3, "train": {"lora": LORA}}
    changes = {"trunk": None, "init_from": str(start), "method": frozen, "optimizer": optimizer}
    recipe = load(PretrainRecipe, toy.seed_recipe(tmp_path / "seed.yaml", shards, **changes))
    with pytest.raises(InputError, match="^optimizer.train: lora: the method does not train 'query' of the encoder"):
        pretraining.build(recipe)


def test_without_peft_the_extra_is_named(
    toy_collection: Path, start: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepsiam.data_prep.common.extras.find_spec", lambda name: None)
    for load_it in (lambda: load_trained(run), lambda: write_adapters(tmp_path / "new", toy_collection, start, LORA)):
        with pytest.raises(InputError, match=r"not installed: peft; run: pip install 'deepsiam\[peft\]'$"):
            load_it()
