"""Folders of encoders: sharded, half-precision and damaged files, memory (states of each type: test_round_trip.py)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.encode import encode
from deepsiam.trainer.interop.folder import INDEX, WEIGHTS, Folder
from tests import warm
from tests.trainer.interop.published_folders import change

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
COMMON = {**SIZES, "vocab_size": 90, "pad_token_id": 1, "max_position_embeddings": 40, "initializer_range": 0.3}
SPECIAL = {"bos_token_id": 2, "eos_token_id": 3}
GROUPED = {"num_key_value_heads": 1, **SPECIAL}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
V3 = {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True}
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
    "deberta-v2": {**DISENTANGLED, **V3, "conv_kernel_size": 3, "type_vocab_size": 0},
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


OTHER_NAMES = ["../model.safetensors", "/etc/x.safetensors", "sub/m.safetensors", "m.bin", "", 3]
NO_INDEXES = ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": []}}', '{"weight_map": {}}']


def test_an_index_names_only_safetensors_files_of_its_folder(tmp_path: Path) -> None:
    publish(tmp_path, "bert", max_shard_size="10KB")
    index = json.loads((tmp_path / INDEX).read_text())
    for name in OTHER_NAMES:
        change(tmp_path / INDEX, {"weight_map": {**index["weight_map"], "x": name}})
        with pytest.raises(InputError, match=rf"{INDEX}: weight_map: .* is not the name of a safetensors file"):
            Folder(tmp_path).trunk()
    for content in NO_INDEXES:
        (tmp_path / INDEX).write_text(content)
        with pytest.raises(InputError, match=INDEX):
            Folder(tmp_path).trunk()


def test_a_missing_doubled_or_damaged_shard_is_named(tmp_path: Path) -> None:
    publish(tmp_path, "bert", max_shard_size="10KB")
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


OF_CODE = {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}
IS_CODE = r"config.json: auto_map: its encoder is code \(.*\), which is never run"
OTHER_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"intermediate_size": 64}, r"intermediate.dense.bias is \[48\], its configuration has \[64\]"),
    ({"num_hidden_layers": 3}, r"lacks encoder.layer.2.\S+ of a bert encoder with its configuration"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config: its weights are quanti"),
    ({"auto_map": {"AutoModel": "jinaai/jina-bert--modeling_bert.JinaBertModel"}}, IS_CODE),
    ({"model_type": "new", "auto_map": OF_CODE}, IS_CODE),
    ({"model_type": "new", "auto_map": {"AutoModel": ["a", "b"]}}, IS_CODE),
]


def test_a_configuration_of_other_weights_or_of_code_is_not_called_damaged(tmp_path: Path) -> None:
    theirs = publish(tmp_path, "bert")
    config = (tmp_path / "config.json").read_text()
    for keys, message in OTHER_CONFIGS:
        change(tmp_path / "config.json", keys)
        with pytest.raises(InputError, match=message) as refused:
            Folder(tmp_path).trunk()
        assert "copy the folder again" not in str(refused.value)
        (tmp_path / "config.json").write_text(config)
    # EuroBERT's folders, for example, still name the code that has become transformers' own
    code = {"AutoConfig": "configuration_bert.BertConfig", "AutoModel": "modeling_bert.BertModel"}
    change(tmp_path / "config.json", {"auto_map": code})
    same_states(Folder(tmp_path).trunk(), theirs)


STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel does not tell a process's peak memory")
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1.3), (torch.bfloat16, 1.8)])
def test_the_peak_is_little_more_than_the_weights(dtype: torch.dtype, most: float, tmp_path: Path) -> None:
    """A file is mapped, never copied as a whole; in shards and with a tied head. Half-precision files count too."""
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "pad_token_id": 0, "tie_word_embeddings": True}
    folders = {1: tmp_path / "tiny", 8: tmp_path / "larger"}
    for layers, folder in folders.items():
        sizes = {"vocab_size": 500 * layers, "num_hidden_layers": layers, "hidden_size": 512, "intermediate_size": 1536}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **sizes, **heads))
        model.to(dtype).save_pretrained(folder, max_shard_size="20MB")
    assert len(list(folders[8].glob("*.safetensors"))) > 2
    process = warm.fork(_measure, *folders.values(), tmp_path / "measured")
    process.join()
    copied, peak = map(float, (tmp_path / "measured").read_text().split())
    assert copied < 0.1
    assert 0.5 < peak < most


def _measure(tiny: Path, folder: Path, out: Path) -> None:
    """Write the memory that reading the files takes but for mapped pages, and the peak, as shares of the weights."""
    Folder(tiny).trunk()  # what is imported on the way is not counted
    opened, resident, anonymous = Folder(folder), _memory("VmRSS"), _memory("RssAnon")
    assert opened.weights
    copied = _memory("RssAnon") - anonymous
    size = sum(4 * parameter.numel() for parameter in opened.trunk().parameters())
    out.write_text(f"{copied / size} {(_memory('VmHWM') - resident) / size}")


def _memory(key: str) -> int:
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(key)) * 1024
