"""A run's adapters without the encoder that they were added to, as peft's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.hub import is_address, local_model, parse_model
from deepsiam.models.adapters import NAME, Lora, lora_config
from deepsiam.trainer.interop.files import prompt_card, refuse, save_tensors, write_tokenizer
from deepsiam.trainer.interop.folder import Folder, read_tensors
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import CONFIG, ENCODER

TRUNK, PEFT, LORA = "trunk.", "base_model.model.", ".lora_"  # in the names of parameters
OF_TRAINING = ("log_temperature", "teacher_head.")  # heads that no export needs
CARD = """---
library_name: peft
tags: [lora, feature-extraction, deepsiam]
---
# {name}

Adapters of a text encoder trained with deepsiam ({kind}), texts up to {tokens} tokens. From {run}, step {step}. They
belong to the encoder in `{base}`.

```python
from peft import PeftModel
from transformers import AutoTokenizer, {loader}

tokenizer, base = AutoTokenizer.from_pretrained("{out}"), {loader}.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "{out}")
hidden = model(**tokenizer("a text", truncation=True, return_tensors="pt")).last_hidden_state
```
"""


def write(
    trained: LoadedModel,
    lora: Lora,
    weights: Path,
    base: str,
    folder: Path,
    facts: Mapping[str, Any],
    *,
    bidirectional: bool,
) -> str:
    """Write adapters, their settings and the tokenizer; return the README.md.

    Args:
        trained: a model with adapters.
        lora: their keys.
        weights: the file of weights of the checkpoint, in which they are not merged.
        base: the folder of the encoder that they were added to, or its address on the hub, with the commit.
        folder: an existing one, to write to.
        facts: for the README.md.
        bidirectional: whether the encoder is a decoder that was made bidirectional.

    Raises:
        InputError: the run is more than an encoder with adapters.
    """
    method = trained.method
    heads = [name for name in trained.model.heads if not name.startswith(OF_TRAINING)]
    heads = [] if method.folder_kind == ENCODER else heads
    beyond = {
        f"have {min(heads, default='')}, which is outside the encoder": bool(heads),
        "make a decoder bidirectional": bidirectional,
        "have tokens that the base lacks": bool(method.added_tokens + method.markers),
    }
    refuse(trained, "adapters alone", beyond, ", or leave out --format adapters")
    folder_of_base = local_model(base)
    encoder = Folder(folder_of_base).encoder
    if not (encoder / CONFIG).is_file():
        raise InputError(
            f"{base}: the base of these adapters is a run, which transformers does not load: start from its "
            "export, or leave out --format adapters"
        )
    adapters = {
        PEFT + name.removeprefix(TRUNK).replace(f".{NAME}.", "."): tensor
        for name, tensor in read_tensors(weights).items()
        if name.startswith(TRUNK) and LORA in name
    }
    save_tensors(adapters, folder / "adapter_model.safetensors")
    config = lora_config(trained.model.trunk, lora)
    config.target_modules = lora.targets  # it has them in any order
    name = str(encoder)
    if is_address(base) and encoder == folder_of_base:  # peft, too, finds it on the hub
        name, config.revision = parse_model(base)
    config.base_model_name_or_path, config.task_type = name, "FEATURE_EXTRACTION"
    config.save_pretrained(str(folder))
    write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
    return CARD.format(**facts, base=name) + prompt_card(method)
