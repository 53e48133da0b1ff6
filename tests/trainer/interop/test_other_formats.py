"""What is published in other forms is one line, which says what it is and what to do, wherever a folder is opened."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy

BERT = json.dumps({"model_type": "bert", "architectures": ["BertModel"]})
CAUSAL = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
MODULES = json.dumps([{"path": "", "type": "sentence_transformers.models.Transformer"}])
ADAPTERS = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "some/base"})
FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "adapters": (
        {"adapter_config.json": ADAPTERS, "adapter_model.safetensors": ""},
        "adapter_config.json: adapters are not supported: merge them into their base, 'some/base' .*name its folder",
    ),
    "adapters of a library's folder": ({"adapter_config.json": ADAPTERS, "modules.json": MODULES}, "'some/base'"),
    "adapters without a base": ({"adapter_config.json": "{}", "config.json": BERT}, "merge them into their base"),
    "gguf": ({"model-Q4_K_M.gguf": ""}, "model-Q4_K_M.gguf: is a model in GGUF.*: name a folder with config.json"),
    "gguf beside a configuration": (
        {"m.gguf": "", "config.json": CAUSAL, "tokenizer.json": "{}"},
        "m.gguf: is a model",
    ),
    "onnx": ({"onnx/model.onnx": "", "config.json": BERT}, "model.onnx: is a model in ONNX"),
    "a maker's files": (
        {"consolidated.safetensors": "", "params.json": "{}"},
        "consolidated.safetensors: is a model in",
    ),
    "the hub's cache": ({"snapshots/abc/config.json": BERT, "refs/main": "abc"}, "name a folder in it, .*ots/abc"),
    "vocab.txt": ({"config.json": BERT, "vocab.txt": "[PAD]"}, r"tokenizer.json: is missing, and vocab.txt .*save_pre"),
    "bpe": ({"config.json": CAUSAL, "vocab.json": "{}", "merges.txt": ""}, "missing, and merges.txt, vocab.json of an"),
    "sentencepiece": ({"config.json": CAUSAL, "tokenizer.model": ""}, "is missing, and tokenizer.model of an older"),
    "tiktoken": ({"config.json": CAUSAL, "qwen.tiktoken": ""}, "is missing, and qwen.tiktoken of an older"),
}


def open_start(folder: Path, tokenizer_json: Path) -> Any:
    values = toy.finetune_values(folder / "run", tokenizer_json.parent, init_from=str(folder))
    recipe = with_keys_from_folder(build(FinetuneRecipe, values, "test"))
    return load_encoder(Folder(recipe.init_from or folder), tokenizers.load(tokenizer_json))


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("opened", ["init_from", "system"])
def test_other_forms_are_one_line(tmp_path: Path, toy_collection: Path, name: str, opened: str) -> None:
    files, message = FOLDERS[name]
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    if opened == "system" and '"BertModel"' in files.get("config.json", "") and "tokenizer.json" in message:
        message = "an encoder without a pooling"  # which no tokenizer helps
    with pytest.raises(InputError, match=message) as error:
        load_any(tmp_path) if opened == "system" else open_start(tmp_path, toy_collection / "tokenizer.json")
    assert "\n" not in str(error.value)


def test_a_file_is_no_folder(tmp_path: Path, toy_collection: Path) -> None:
    for name, message in (("model.gguf", "model.gguf: is a model in GGUF"), ("model.safetensors", "is a file: name a")):
        (tmp_path / name).touch()
        for opened in (load_any, lambda path: open_start(path, toy_collection / "tokenizer.json")):
            with pytest.raises(InputError, match=message):
                opened(tmp_path / name)


def test_a_folder_in_the_trunk_s_place_is_one_line(tmp_path: Path) -> None:
    values = toy.finetune_values(tmp_path / "run", tmp_path, init_from=None, trunk="some/folder")
    with pytest.raises(InputError, match="trunk: describes a new encoder: .* set init_from=some/folder"):
        build(FinetuneRecipe, values, "test")
