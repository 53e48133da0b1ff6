"""Every kind of folder: which it is, and what a training that starts from it leaves out is one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import kind_of, left_out
from deepsiam.trainer.interop.settings import KINDS, Kind
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.interop.published_folders import each_file_once
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
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(keys))
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
