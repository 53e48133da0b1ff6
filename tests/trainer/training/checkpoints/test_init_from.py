"""A trained model loaded, and starts from runs, exports and Hugging Face folders; what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.registry import MATCHING
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.settings import MARK
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.init_from import copy_heads, load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import STEP, vouch, write_run


@pytest.fixture
def tokenizer(shards: Path) -> Tokenizer:
    return tokenizers.load(shards / "tokenizer.json")


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return write_run(tmp_path / "run", tokenizer.path, name="seed", max_tokens=32)


def hugging_face(folder: Path, tokenizer: Tokenizer, rows: int = 0) -> BertForMaskedLM:
    """Write a masked LM, with so many more rows of token embeddings than the tokenizer needs."""
    shape = {key: value for key, value in toy.TRUNK.items() if key != "model_type"}
    model = BertForMaskedLM(BertConfig(vocab_size=tokenizer.vocab_size + rows, pad_token_id=tokenizer.pad, **shape))
    model.save_pretrained(folder)
    shutil.copy(tokenizer.path, folder / "tokenizer.json")
    return model


def test_a_run_and_its_export_give_the_encoder_and_the_heads_of_the_same_method(
    run: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    before = load_trained(run)
    export_encoder(before, tmp_path / "published", with_decoder=True)
    for start in (run, tmp_path / "published"):
        encoder = load_encoder(Folder(start), tokenizer)
        again = build_model(before.recipe.method, encoder.trunk)
        heads = sum(not name.startswith("trunk.") for name, _ in again.named_parameters())
        line = copy_heads(encoder, again, before.recipe.method)
        assert line.endswith(f"the encoder, and {heads} of the {heads} head weights")
        for name, weight in before.model.state_dict().items():
            torch.testing.assert_close(again.state_dict()[name], weight, rtol=0, atol=0)
    export_encoder(before, tmp_path / "published")
    assert load_encoder(Folder(tmp_path / "published"), tokenizer).heads == {}


def test_another_method_takes_the_encoder_and_the_heads_in_common(run: Path, tokenizer: Tokenizer) -> None:
    encoder = load_encoder(Folder(run), tokenizer)
    mlm = build(PretrainRecipe, {**VALUES, "init_from": str(run), "method": {"name": "mlm"}}, "test").method
    model = build_model(mlm, encoder.trunk)
    line = copy_heads(encoder, model, mlm)
    assert line.endswith("the encoder, and 5 of the 5 head weights")  # the head for masked tokens


def test_a_masked_lm_gives_a_sparse_encoder_its_head_and_another_is_refused(
    run: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    sparse = MATCHING["sparse"].model_validate({"name": "sparse"})
    published = hugging_face(tmp_path / "published", tokenizer)
    for path in (run, tmp_path / "published"):
        encoder = load_encoder(Folder(path), tokenizer)
        model = build_model(sparse, encoder.trunk)
        copy_heads(encoder, model, sparse)
    dense = published.cls.predictions.transform.dense.weight
    torch.testing.assert_close(model.lm_head.dense.weight, dense, rtol=0, atol=0)
    published.bert.save_pretrained(tmp_path / "published")
    encoder = load_encoder(Folder(tmp_path / "published"), tokenizer)
    tilde = MATCHING["tilde"].model_validate({"name": "tilde"})
    for method, instead in ((sparse, ", or set method.head=new_mlm"), (tilde, "")):
        lacks = rf"published has no masked LM's head .*: start from a masked LM, .* optimizer\.train=0\){instead}$"
        model = build_model(method, load_encoder(Folder(tmp_path / "published"), tokenizer).trunk)
        with pytest.raises(InputError, match=lacks):
            copy_heads(encoder, model, method)
    assert sparse.model_copy(update={"head": "new_mlm"}).start_heads is None


def published_name(name: str) -> str:
    """The name of a weight in Google's own BERT folders."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


@pytest.mark.parametrize("renamed", [str, lambda name: name.removeprefix("bert."), published_name])
def test_a_hugging_face_folder_gives_its_encoder(
    tokenizer: Tokenizer, tmp_path: Path, renamed: Callable[[str], str]
) -> None:
    model = hugging_face(tmp_path / "bert", tokenizer)
    weights = load_file(tmp_path / "bert" / "model.safetensors")
    save_file({renamed(name): weight for name, weight in weights.items()}, tmp_path / "bert" / "model.safetensors")
    trunk = load_encoder(Folder(tmp_path / "bert"), tokenizer).trunk
    ids = torch.randint(5, tokenizer.vocab_size, (2, 9))
    own = model.eval().bert(ids).last_hidden_state
    torch.testing.assert_close(trunk.eval()(ids).last_hidden_state, own)


def test_other_tokens_and_missing_folders_are_one_clear_line(run: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = tokenizers.train(["some other words of another text"], 60, tmp_path / "other.json")
    with pytest.raises(InputError, match=r"with other tokens than the data's .*prepare the data with --tokenizer"):
        load_encoder(Folder(run), other)
    with pytest.raises(InputError, match="nowhere: no such folder$"):
        load_encoder(Folder(tmp_path / "nowhere"), tokenizer)


POSITIONS, CONFIG = "bert.embeddings.position_embeddings.weight", "config.json"
ROWS: list[tuple[str, Any, str]] = [  # a file, its content or what changes of it, and what is said
    ("model.safetensors", {POSITIONS: None}, "lacks embeddings.position_embeddings.weight of a bert encoder"),
    ("model.safetensors", {POSITIONS: torch.zeros(3, 3)}, r"position_embeddings.weight is \[3, 3\]"),
    ("model.safetensors", None, "only safetensors files are"),
    (CONFIG, {"model_type": "bertt"}, "config.json: not the configuration of an encoder"),
    (CONFIG, {"hidden_size": "big"}, "config.json: not the configuration of an encoder"),
    (CONFIG, {"num_labels": 10**9}, "num_labels is 1,000,000,000, and at most 100,000 is possible"),
    (CONFIG, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000, and at most 1,000 is possible"),
    (CONFIG, {"hidden_size": 2**24, "vocab_size": 2**24}, "its weights would be"),
    *(
        (MARK, mark, f"{MARK}: .*; damaged; export the run again")
        for mark in ("[1]", "null", "{", "{}", '{"tokenizer": 1}', '{"tokenizer": "a", "added_tokens": -1}')
    ),
]


@pytest.mark.parametrize(("file", "damage", "words"), ROWS, ids=lambda value: str(value)[:30])
def test_a_damaged_folder_is_one_clear_line(
    tokenizer: Tokenizer, tmp_path: Path, file: str, damage: Any, words: str
) -> None:
    hugging_face(tmp_path, tokenizer)
    path = tmp_path / file
    if damage is None:
        path.rename(tmp_path / "pytorch_model.bin")
    elif isinstance(damage, str):
        path.write_text(damage)
    elif file == CONFIG:
        path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    else:
        weights = {**load_file(path), **damage}
        save_file({name: weight for name, weight in weights.items() if weight is not None}, path)
    with pytest.raises(InputError, match=words):
        load_encoder(Folder(tmp_path), tokenizer)


def test_a_folder_with_fewer_embeddings_than_tokens_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    hugging_face(tmp_path, tokenizer, rows=-1)
    with pytest.raises(InputError, match=r"token embeddings are fewer than the .* tokens of its tokenizer.json"):
        load_encoder(Folder(tmp_path), tokenizer)


VALUES = {"run": "r", "steps": 1, "data": {"shards": "s"}, "batch": {"size": 4, "micro": 4}, "optimizer": {"lr": 1e-3}}


@pytest.fixture
def mlm(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)


def test_a_run_and_its_checkpoint_give_the_same_model(mlm: Path) -> None:
    folder = checkpoint.folder(mlm, STEP)
    for trained in (load_trained(mlm), load_trained(folder)):
        assert (trained.kind, trained.step, trained.checkpoint) == ("mlm", STEP, folder)
        assert trained.text_tokens == 32
        assert not trained.model.training
        for name, weight in load_file(folder / checkpoint.WEIGHTS).items():
            torch.testing.assert_close(trained.model.get_parameter(name).data, weight, rtol=0, atol=0)


def test_weights_of_another_model_are_refused(mlm: Path) -> None:
    folder = checkpoint.folder(mlm, STEP)
    weights = folder / checkpoint.WEIGHTS
    save_file({**load_file(weights), "trunk.extra": torch.zeros(1)}, weights)
    vouch(folder)
    with pytest.raises(InputError, match="do not match: trunk.extra is only in one"):
        load_trained(mlm)


def test_a_folder_with_the_manifest_of_something_else_is_no_checkpoint(mlm: Path, toy_collection: Path) -> None:
    with pytest.raises(InputError, match="neither a checkpoint nor a run folder with one, but perhaps .* a collection"):
        load_trained(toy_collection)
    (mlm / checkpoint.MANIFEST).write_bytes((toy_collection / checkpoint.MANIFEST).read_bytes())
    assert load_trained(mlm).step == STEP  # a collection was made in the folder of a run


def test_an_absent_folder_is_no_model_of_the_hub_unless_its_name_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path in (tmp_path / "none", Path("runs/none"), Path("none"), Path("owner/name/none")):
        with pytest.raises(InputError, match=r"none: no such folder$"):
            load_trained(path)
    hub = r"^owner/a-b.c: no such folder; if it is a model of the Hugging Face Hub, write hf://owner/a-b.c$"
    with pytest.raises(InputError, match=hub):
        load_trained(Path("owner/a-b.c"))


def test_a_damaged_checkpoint_is_refused(mlm: Path) -> None:
    folder = checkpoint.folder(mlm, STEP)
    (folder / checkpoint.WEIGHTS).write_bytes(b"")
    for path in (mlm, folder):
        with pytest.raises(InputError, match=f"{checkpoint.WEIGHTS} is damaged"):
            load_trained(path)
