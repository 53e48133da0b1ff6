"""A pre-trained encoder as a plain Hugging Face model, with or without the heads that were trained with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.trainer.interop.files import (
    LIBRARY_MODULES,
    save_tensors,
    write_encoder,
    write_json,
    write_modules,
    write_pooling,
    write_tokenizer,
)
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import DECODER, ENCODER

CARD = """---
library_name: transformers
tags: [feature-extraction, deepsiam]
---
# {name}

A text encoder pre-trained with deepsiam ({kind}), {width} dimensions, texts up to {tokens} tokens. From {run},
step {step}. It has learned no similarity of texts yet: fine-tune it before using it for search.

```python
from transformers import AutoTokenizer, {loader}

tokenizer, model = AutoTokenizer.from_pretrained("{out}"), {loader}.from_pretrained("{out}")
hidden = model(**tokenizer("a text", truncation=True, return_tensors="pt")).last_hidden_state
```

The `pooler_output` is not trained.
"""
OWN_TOKENS = """
It was pre-trained with {own} special tokens after [CLS], which the tokenizer does not have: ids {first} to {last}.
A text's embedding is the concatenated states of all {special}, {all_width} dimensions:

```python
import torch

ids = tokenizer("a text", truncation=True, return_tensors="pt").input_ids
own = torch.arange({first}, {last} + 1).expand(len(ids), -1)
hidden = model(torch.cat([ids[:, :1], own, ids[:, 1:]], dim=1)).last_hidden_state
embedding = hidden[:, :{special}].flatten(1)
```
"""
POOLED = """
Its method pooled texts by `{pooling}`, and so does this folder as a SentenceTransformer.
"""
DECODER_CARD = """
`decoder.safetensors` has the heads that were trained with the encoder; `decoder.json` shows how to load both.
"""


def write(trained: LoadedModel, _: PretrainingConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write encoder and tokenizer; return the README.md."""
    write_encoder(trained.model.trunk, folder)
    write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
    text = CARD.format(**facts)
    if (pooling := getattr(trained.method, "pooling", "cls")) != "cls":
        types = {path: kind for path, kind in LIBRARY_MODULES.items() if path != "2_Normalize"}
        write_modules(folder, types, trained.text_tokens, {}, {"similarity_fn_name": "dot"})
        write_pooling(folder, pooling, facts["width"])
        text += POOLED.format(pooling=pooling)
    if (special := 1 + trained.method.added_tokens) > 1:
        first_id, count = trained.tokenizer.vocab_size, special - 1
        text += OWN_TOKENS.format(
            own=count, first=first_id, last=first_id + count - 1, special=special, all_width=special * facts["width"]
        )
    return text


def check_decoder(trained: LoadedModel) -> None:
    """Raise InputError if a run has no pre-training heads."""
    if trained.method.folder_kind != ENCODER:
        raise InputError(f"{trained.checkpoint}: a fine-tuned run has no decoder: export its pre-training run")
    if not trained.model.heads:
        raise InputError(f"{trained.checkpoint}: {trained.kind} trains only the encoder: leave out --with-decoder")


def write_decoder(trained: LoadedModel, folder: Path) -> None:
    """Write all parameters except the encoder's, and how to rebuild the model from both files."""
    save_tensors(trained.model.heads, folder / DECODER)
    config = type(trained.method)
    rebuild = [
        f"from {config.__module__} import {config.__name__}",
        "trunk = transformers.AutoModel.from_pretrained(FOLDER)",
        f"model = {config.__name__}(**method).model(trunk)",
        "model.load_state_dict(safetensors.torch.load_file(FOLDER + '/decoder.safetensors'), strict=False)",
    ]
    instructions = {
        "class": f"{config.__module__}.{config.__name__}",
        "method": trained.method.model_dump(mode="json"),
        "rebuild": rebuild,
    }
    write_json(folder / "decoder.json", instructions)
