"""Every kind of folder: which it is, what a start leaves out of it, and what is published in other forms: one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import kind_of, left_out
from deepsiam.trainer.interop.settings import KINDS, Kind
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.interop.published_folders import each_file_once, write
from tests.trainer.runs import write_run

DENSE, SPARSE, COLBERT, PAIRS, CAUSAL, ENCODER = KINDS
LIBRARY = "sentence_transformers.models."
FOLDERS: dict[Kind, tuple[str, list[str]]] = {  # the class of the weights, the modules
    DENSE: ("BertModel", ["Transformer", "Pooling", "Normalize"]),
    SPARSE: ("BertForMaskedLM", ["Transformer", "SpladePooling"]),
    COLBERT: ("BertModel", ["Transformer", "Dense", "MultiVectorMask", "Normalize"]),
    PAIRS: ("BertForSequenceClassification", ["Transformer"]),
    CAUSAL: ("LlamaForCausalLM", ["Transformer", "LogitScore"]),
    ENCODER: ("BertForMaskedLM", []),
}


def write_folder(folder: Path, kind: Kind, changes: dict[str, Any]) -> Path:
    """Write the files of settings of a kind's folder, with keys by `file: key`."""
    architecture, modules = FOLDERS[kind]
    kinds = {name: name if place else "" for place, name in enumerate(modules)}
    files: dict[str, Any] = {"config.json": {"architectures": [architecture]}}
    files |= {f"{name}/config.json": {} for name in modules[1:]}
    for name, value in changes.items():
        file, key = name.split(": ")
        files[file] = {**files.get(file, {}), key: value}
    if modules:
        files["modules.json"] = [{"type": LIBRARY + name, "path": path} for name, path in kinds.items()]
    for name, keys in files.items():
        write(folder / name, keys)
    return folder


SETTINGS, BERT = "config_sentence_transformers.json: ", "sentence_bert_config.json: "


@pytest.mark.parametrize(
    ("kind", "method", "changes", "without"),
    [
        *((kind, kind, {}, "") for kind in KINDS),
        (DENSE, DENSE, {SETTINGS + "truncate_dim": 8}, "its truncate_dim (8)"),
        (DENSE, DENSE, {SETTINGS + "rescale": 2}, "its rescale (2)"),
        (DENSE, DENSE, {SETTINGS + "rescale": 10**99}, f"its rescale (1{79 * '0'}…)"),  # 80 characters of it
        (DENSE, DENSE, {BERT + "max_seq_length": 8}, ""),  # a recipe has lengths of its own
        (DENSE, DENSE, {BERT + "layers": [1]}, "its layers ([1])"),
        (DENSE, DENSE, {BERT + "processing_kwargs": {"text": {"max_length": 8}}}, ""),
        (DENSE, DENSE, {BERT + "query_expansion": {"length": 8}}, "its query_expansion ({'length': 8})"),
        (DENSE, DENSE, {"tokenizer_config.json: truncation_side": "left"}, "its truncation_side ('left')"),
        (DENSE, DENSE, {"Pooling/config.json: skip_first": 1}, "its skip_first (1)"),
        (DENSE, COLBERT, {"Pooling/config.json: skip_first": 1}, "its Pooling, its Normalize"),
        (SPARSE, SPARSE, {BERT + "transformer_task": "fill-mask", SETTINGS + "model_type": "SparseEncoder"}, ""),
        (SPARSE, SPARSE, {"SpladePooling/config.json: activation_function": "log1p_relu"},
         "its activation_function ('log1p_relu')"),
        (SPARSE, SPARSE, {SETTINGS + "max_active_dims": 64}, "its max_active_dims (64)"),
        (SPARSE, DENSE, {}, "its SpladePooling"),
        (COLBERT, COLBERT, {"MultiVectorMask/config.json: keep_only_token_ids": [3]}, "its keep_only_token_ids ([3])"),
        (COLBERT, COLBERT, {"MultiVectorMask/config.json: skiplist_tasks": ["document", "query"]},
         "its skiplist_tasks (['document', 'query'])"),
        (COLBERT, COLBERT, {BERT + "query_expansion": {"strategy": "min", "length": 8}},
         "its query_expansion ({'strategy': 'min', 'length': 8})"),
        (COLBERT, DENSE, {}, "its Dense, its MultiVectorMask, its Normalize"),
        (PAIRS, PAIRS, {BERT + "processing_kwargs": {"text": {"truncation": "only_first"}},
                        SETTINGS + "model_type": "CrossEncoder"},
         "its processing_kwargs ({'text': {'truncation': 'only_first'}})"),
        (CAUSAL, CAUSAL, {"tokenizer_config.json: truncation_side": "left"}, ""),
        (CAUSAL, CAUSAL, {SETTINGS + "activation_fn": "torch.nn.Tanh"}, "its activation_fn ('torch.nn.Tanh')"),
        (CAUSAL, DENSE, {}, "its LogitScore"),
        (ENCODER, DENSE, {"tokenizer_config.json: truncation_side": "left"}, "its truncation_side ('left')"),
    ],
)  # fmt: skip
def test_what_a_start_leaves_out_is_one_line(
    tmp_path: Path, kind: Kind, method: str, changes: dict[str, Any], without: str
) -> None:
    folder = write_folder(tmp_path, kind, changes)
    assert kind_of(Folder(folder)) == kind
    assert left_out(Folder(folder), method) == ([f"{folder}: training starts without {without}"] if without else [])


def test_a_run_leaves_nothing_out(tmp_path: Path) -> None:
    assert left_out(Folder(tmp_path), DENSE) == []


@pytest.mark.parametrize("name", ["siamese", "colbert", "cross_encoder", "sparse", "mlm"])
def test_a_start_and_a_ranking_open_each_file_once(toy_collection: Path, tmp_path: Path, name: str) -> None:
    """Of all kinds of folder but a causal language model's (`test_causal_lm.py`)."""
    keys = {"negatives_per_query": 1} if name == "cross_encoder" else {}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name=name, **keys)
    out = tmp_path / "out"
    export_encoder(load_trained(run), out)
    method = {"name": "siamese" if name == "mlm" else name, **keys}
    values = toy.finetune_values(tmp_path / "new", toy_collection, init_from=str(out), method=method)
    with each_file_once(out):
        finetuning.build(build(FinetuneRecipe, values, "test"))
    if name in ("siamese", "colbert", "cross_encoder"):
        with each_file_once(out):
            load_any(out)


BERT_FILE = json.dumps({"model_type": "bert", "architectures": ["BertModel"]})
LLAMA = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
MODULES = json.dumps([{"path": "", "type": LIBRARY + "Transformer"}])
ADAPTERS = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "some/base"})
OTHER_FORMS = [
    ({"adapter_config.json": ADAPTERS, "adapter_model.safetensors": ""},
     "adapter_config.json: adapters are not supported: merge them into their base, 'some/base' .*name its folder"),
    ({"adapter_config.json": ADAPTERS, "modules.json": MODULES}, "'some/base'"),
    ({"adapter_config.json": "{}", "config.json": BERT_FILE}, "merge them into their base"),
    ({"model-Q4_K_M.gguf": ""}, "model-Q4_K_M.gguf: is a model in GGUF.*: name a folder with config.json"),
    ({"m.gguf": "", "config.json": LLAMA, "tokenizer.json": "{}"}, "m.gguf: is a model"),
    ({"onnx/model.onnx": "", "config.json": BERT_FILE}, "model.onnx: is a model in ONNX"),
    ({"consolidated.safetensors": "", "params.json": "{}"}, "consolidated.safetensors: is a model in"),  # a maker's
    ({"snapshots/abc/config.json": BERT_FILE, "refs/main": "abc"}, "name a folder in it, .*ots/abc"),  # the hub's cache
    ({"config.json": BERT_FILE, "vocab.txt": "[PAD]"}, r"tokenizer.json: is missing, and vocab.txt .*save_pre"),
    ({"config.json": LLAMA, "vocab.json": "{}", "merges.txt": ""}, "missing, and merges.txt, vocab.json of an"),
    ({"config.json": LLAMA, "tokenizer.model": ""}, "is missing, and tokenizer.model of an older"),
    ({"config.json": LLAMA, "qwen.tiktoken": ""}, "is missing, and qwen.tiktoken of an older"),
]  # fmt: skip


def open_start(folder: Path, tokenizer_json: Path) -> Any:
    values = toy.finetune_values(folder / "run", tokenizer_json.parent, init_from=str(folder))
    recipe = with_keys_from_folder(build(FinetuneRecipe, values, "test"))
    return load_encoder(Folder(recipe.init_from or folder), tokenizers.load(tokenizer_json))


@pytest.mark.parametrize(("files", "message"), OTHER_FORMS, ids=[message for _, message in OTHER_FORMS])
def test_other_forms_are_one_line_to_a_start_and_a_ranking(
    tmp_path: Path, toy_collection: Path, files: dict[str, str], message: str
) -> None:
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=message) as of_start:
        open_start(tmp_path, toy_collection / "tokenizer.json")
    if "vocab.txt" in files:
        message = "an encoder without a pooling"  # which no tokenizer helps
    with pytest.raises(InputError, match=message) as of_ranking:
        load_any(tmp_path)
    assert "\n" not in f"{of_start.value}{of_ranking.value}"


def test_a_file_is_no_folder(tmp_path: Path, toy_collection: Path) -> None:
    for name, message in (("model.gguf", "model.gguf: is a model in GGUF"), ("model.safetensors", "is a file: name a")):
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=message):
            load_any(tmp_path / name)
        with pytest.raises(InputError, match=message):
            open_start(tmp_path / name, toy_collection / "tokenizer.json")


def test_a_folder_in_the_trunk_s_place_is_one_line(tmp_path: Path) -> None:
    values = toy.finetune_values(tmp_path / "run", tmp_path, init_from=None, trunk="some/folder")
    with pytest.raises(InputError, match="trunk: describes a new encoder: .* set init_from=some/folder"):
        build(FinetuneRecipe, values, "test")
