"""Published encoders: sharded, half-precision and damaged files (the states of each type: test_round_trip.py)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.encode import encode
from deepsiam.trainer.interop.folder import INDEX, WEIGHTS, Folder

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
COMMON = {**SIZES, "vocab_size": 90, "pad_token_id": 1, "max_position_embeddings": 40, "initializer_range": 0.3}
SPECIAL = {"bos_token_id": 2, "eos_token_id": 3}
GROUPED = {"num_key_value_heads": 1, **SPECIAL}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
TYPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "mpnet": {},
    "distilbert": {},
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "deberta": DISENTANGLED,
    # the undeclared keys of DeBERTa-v3, and a convolution as in DeBERTa-v2's largest ones
    "deberta-v2": {
        **DISENTANGLED,
        "position_buckets": 4,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "conv_kernel_size": 3,
        "type_vocab_size": 0,
    },
    "modernbert": {**SPECIAL, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8},
    "nomic_bert": {},
    "gte": {},
    "eurobert": SPECIAL,
    "roformer": {},
    "squeezebert": {"embedding_size": 32, **{f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention")}},
    "gpt2": SPECIAL,
    "qwen2": {**GROUPED, "head_dim": 24},  # undeclared
    "qwen3": GROUPED,
    "qwen3_moe": {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2},  # stored as num_local_experts alone
    "llama": {**GROUPED, "is_causal": False},  # undeclared: an encoder made of a decoder
    "gemma3_text": {**GROUPED, "use_bidirectional_attention": True, "head_dim": 16},
}
IDS = torch.randint(4, 90, (3, 20), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(20) < torch.tensor([20, 7, 13])[:, None]


def publish(folder: Path, kind: str, **options: Any) -> PreTrainedModel:
    """Write a folder as people publish one, with a head where the type has one; return the stock encoder of it."""
    config = AutoConfig.for_model(kind, **COMMON, **TYPES[kind])
    torch.manual_seed(0)
    for with_head in (AutoModelForMaskedLM, AutoModelForCausalLM, AutoModel):
        if type(config) in with_head._model_mapping:
            with_head.from_config(config).save_pretrained(folder, **options)
            break
    return stock(folder)


def stock(folder: Path) -> PreTrainedModel:
    return AutoModel.from_pretrained(folder, dtype=torch.float32).eval()


def same_states(own: PreTrainedModel, theirs: PreTrainedModel) -> None:
    with torch.inference_mode():
        expected = theirs(input_ids=IDS, attention_mask=MASK.long()).last_hidden_state
        torch.testing.assert_close(encode(own.eval(), IDS, MASK)[MASK], expected[MASK], atol=2e-5, rtol=0)


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    theirs = publish(tmp_path, "bert", max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    same_states(Folder(tmp_path).trunk(), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_loaded_in_fp32(tmp_path: Path, dtype: torch.dtype) -> None:
    publish(tmp_path, "roberta")
    save_file({name: w.to(dtype) for name, w in load_file(tmp_path / WEIGHTS).items()}, tmp_path / WEIGHTS)
    own = Folder(tmp_path).trunk()
    assert {weight.dtype for weight in own.parameters()} == {torch.float32}
    same_states(own, stock(tmp_path))


def test_a_pooler_that_no_state_depends_on_may_be_missing(tmp_path: Path) -> None:
    publish(tmp_path, "squeezebert")  # whose class has a pooler always
    weights = {name: w for name, w in load_file(tmp_path / WEIGHTS).items() if "pooler" not in name}
    save_file(weights, tmp_path / WEIGHTS)
    same_states(Folder(tmp_path).trunk(), stock(tmp_path))
    del weights["transformer.encoder.layers.1.output.layernorm.weight"]
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=r"lacks encoder.layers.1.output.layernorm.weight of a squeezebert encoder"):
        Folder(tmp_path).trunk()


def sharded(folder: Path) -> Path:
    publish(folder, "bert", max_shard_size="10KB")
    return folder / INDEX


def rewrite(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(index.read_text())
    change(content["weight_map"])
    index.write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/x.safetensors", "sub/m.safetensors", "m.bin", "", 3])
def test_an_index_names_only_safetensors_files_of_its_folder(tmp_path: Path, name: Any) -> None:
    index = sharded(tmp_path)
    rewrite(index, lambda places: places.update(x=name))
    with pytest.raises(InputError, match=rf"{INDEX}: weight_map: .* is not the name of a safetensors file"):
        Folder(tmp_path).trunk()


def test_a_missing_doubled_or_damaged_shard_is_named(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    first, second = (load_file(tmp_path / name) for name in files[:2])
    name = min(first)
    save_file({**second, name: first[name]}, tmp_path / files[1])
    with pytest.raises(InputError, match=rf"{files[1]}: has {name}, which is also in {files[0]}"):
        Folder(tmp_path).trunk()
    save_file(second, tmp_path / files[1])
    save_file({other: tensor for other, tensor in first.items() if other != name} or second, tmp_path / files[0])
    with pytest.raises(InputError, match=rf"(lacks {name}, which {INDEX} expects there|which is also in)"):
        Folder(tmp_path).trunk()
    (tmp_path / files[0]).write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=rf"{files[0]}: cannot read the weights .* damaged; copy the folder again"):
        Folder(tmp_path).trunk()
    (tmp_path / files[0]).unlink()
    with pytest.raises(InputError, match=rf"1 of its {len(files)} files are missing, such as {files[0]}"):
        Folder(tmp_path).trunk()
    for content in ("{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": []}}', '{"weight_map": {}}'):
        index.write_text(content)
        with pytest.raises(InputError, match=INDEX):
            Folder(tmp_path).trunk()


def test_a_folder_that_does_not_fit_itself_is_not_called_damaged(tmp_path: Path) -> None:
    publish(tmp_path / "a", "bert")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    for change, message in (
        ({"intermediate_size": 64}, r"intermediate.dense.bias is \[48\], its configuration has \[64\]"),
        ({"num_hidden_layers": 3}, r"lacks encoder.layer.2.\S+ of a bert encoder with its configuration"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config: its weights are quanti"),
    ):
        shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
        (tmp_path / "b" / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(InputError, match=message) as refused:
            Folder(tmp_path / "b").trunk()
        assert "copy the folder again" not in str(refused.value)


def test_an_encoder_that_is_code_of_the_folder_is_refused(tmp_path: Path) -> None:
    theirs = publish(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    for changes in (
        {"auto_map": {"AutoModel": "jinaai/jina-bert--modeling_bert.JinaBertModel"}},
        {"model_type": "new", "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}},
        {"model_type": "new", "auto_map": {"AutoModel": ["a", "b"]}},
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(InputError, match=r"config.json: auto_map: its encoder is code \(.*\), which is never run"):
            Folder(tmp_path).trunk()
    # EuroBERT's folders, for example, still name the code that has become transformers' own
    code = {"AutoConfig": "configuration_bert.BertConfig", "AutoModel": "modeling_bert.BertModel"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": code}))
    same_states(Folder(tmp_path).trunk(), theirs)
