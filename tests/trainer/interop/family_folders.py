"""Tiny published folders of each family, with the family's tokenizer."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import build_trunk
from tests.data_prep.tokenizers.families import FAMILIES, odd_strings
from tests.trainer.interop.published_folders import change, write_layout

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ENCODER = {**SIZES, "max_position_embeddings": 40}
DECODER = {**ENCODER, "num_key_value_heads": 1, "head_dim": 16}
TRUNKS: dict[str, tuple[str, dict[str, Any]]] = {  # model_type: the family of its tokenizer, its configuration
    "bert": ("bert", ENCODER),
    "distilbert": ("bert", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 40}),
    "electra": ("bert", {**ENCODER, "embedding_size": 16}),
    "roberta": ("roberta", ENCODER),
    "xlm-roberta": ("xlm-roberta", ENCODER),
    "mpnet": ("mpnet", ENCODER),
    "albert": ("albert", {**ENCODER, "embedding_size": 16}),
    "deberta-v2": ("deberta-v2", {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "modernbert": ("modernbert", {**ENCODER, "local_attention": 8}),
    "eurobert": ("eurobert", ENCODER),
    "t5": ("t5", {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 64}),
    "mt5": ("t5", {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 64}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 40}),
    "qwen2": ("qwen2", {**ENCODER, "num_key_value_heads": 1}),
    "qwen3": ("qwen3-embedding", DECODER),
    "llama": ("llama3", DECODER),
    "mistral": ("llama", DECODER),
    "gemma2": ("gemma", DECODER),
    "gemma3_text": ("gemma", DECODER),
}
CAUSAL = ("gpt2", "qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text")
TEXTS = [*odd_strings()[90:110], "a", " ".join(["the ship of bread"] * 40)]


def trunk_of(kind: str, tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    """The configuration of a trunk, with the ids of its tokenizer."""
    names = {"modernbert": ("bos", "cls", "eos", "sep"), "eurobert": ("bos", "eos")}.get(kind, ())
    named = {f"{n}_token_id": tokenizer.cls if n in ("bos", "cls") else tokenizer.sep for n in names}
    return {
        "model_type": kind,
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad,
        **named,
        **TRUNKS[kind][1],
    }


def write_folder(folder: Path, kind: str, pooling: str, *, positions: int | None = None, **config: Any) -> Path:
    """A folder of a family, as the library writes it, whose random weights give texts different vectors."""
    more = {"max_position_embeddings": positions} if positions else {}
    tokenizer = write_tokenizer(folder, TRUNKS[kind][0], **config)
    torch.manual_seed(0)
    save_random(AutoModel.from_config(build_trunk({**trunk_of(kind, tokenizer), **more}).config), folder, 0.1)
    return write_layout(folder, 5, pooling, length=24)


def write_tokenizer(folder: Path, family: str, **config: Any) -> tokenizers.Tokenizer:
    """Write the tokenizer of a family, with keys of its configuration."""
    FAMILIES[family].write(folder)
    tokenizer = tokenizers.load(folder)
    names = {f"{role}_token": token for role, token in tokenizer.special_tokens.items()}
    change(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names, **config})
    return tokenizer


def save_random(model: PreTrainedModel, folder: Path, noise: float) -> None:
    """Save a model with noise in its weights, so that it tells texts apart."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * noise)
    model.save_pretrained(folder)


CAUSAL_LMS: dict[str, tuple[str, dict[str, Any]]] = {  # the family of its tokenizer, its configuration
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512}),
    "qwen2": ("qwen2", {**DECODER, "tie_word_embeddings": False}),
    "qwen3": ("qwen2", {**DECODER, "tie_word_embeddings": True}),
    "llama": ("llama3", DECODER),
    "mistral": ("mistral", DECODER),
    "gemma2": ("gemma", {**DECODER, "query_pre_attn_scalar": 16, "final_logit_softcapping": 3.0}),
    "gemma3_text": ("gemma", DECODER),
    "granite": ("llama3", {**DECODER, "logits_scaling": 8.0}),
    "phi": ("qwen2", DECODER),  # its head has biases
}


def write_causal_lm(folder: Path, kind: str, **config: Any) -> Path:
    """Write a causal language model whose random weights tell texts apart."""
    family, settings = CAUSAL_LMS[kind]
    tokenizer = write_tokenizer(folder, family)
    ids = {
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    long = {} if kind == "gpt2" else {"max_position_embeddings": 512}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**settings, **long, **ids, **config})
    save_random(AutoModelForCausalLM.from_config(config), folder, 0.2)
    return folder


def texts_for(folder: Path) -> list[str]:
    """The texts, and an empty one where its input is not empty."""
    tokenizer = tokenizers.load(folder / "tokenizer.json")
    return [text for text in ["", *TEXTS] if any(tokenizer.text_frame) or len(tokenizer.encode([text])[0])]
