"""Small folders of causal language models, as transformers writes them, with the tokenizers of their families."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from tests.data_prep.tokenizers.families import FAMILIES
from tests.trainer.interop.published_folders import change

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
DECODER = {**SIZES, "max_position_embeddings": 512, "num_key_value_heads": 1, "head_dim": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # the family of its tokenizer, its configuration
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
    """A causal language model whose random weights tell texts apart."""
    family, settings = MODELS[kind]
    FAMILIES[family].write(folder)
    tokenizer = tokenizers.load(folder)
    names = {f"{role}_token": token for role, token in tokenizer.special_tokens.items()}
    change(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    torch.manual_seed(0)
    ids = {
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**settings, **ids, **config}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return folder
