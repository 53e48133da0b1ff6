"""A run's adapters without the encoder that they were added to, as peft's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.adapters import NAME, Adapters, lora_config
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.trainer.ranking.export.export_files import prompt_card, refuse, save_tensors, write_tokenizer
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.base import read_base
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.published.hugging_face import CONFIG, read_tensors
from deepsiam.trainer.training.published.modules import encoder_of

TRUNK, PEFT, LORA = "trunk.", "base_model.model.", ".lora_"  # in the names of parameters
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


def write(trained: TrainedModel, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write adapters, their settings and the tokenizer; return the README.md.

    Raises:
        InputError: the run has no adapters, or is more than an encoder with adapters.
    """
    base, train, method = read_base(trained.checkpoint), trained.recipe.optimizer.train, trained.method
    if base is None or not isinstance(train, Adapters):
        raise InputError(f"{trained.checkpoint}: was trained without adapters: leave out --format adapters")
    heads = trained.model.heads.keys() - {"log_temperature"} if isinstance(method, MatchingConfig) else ()
    beyond = {
        f"have {min(heads, default='')}, which is outside the encoder": bool(heads),
        "make a decoder bidirectional": trained.recipe.bidirectional,
        "have tokens that the base lacks": bool(method.added_tokens + method.markers),
    }
    refuse(trained, "adapters alone", beyond, ", or leave out --format adapters")
    encoder = encoder_of(Path(base.folder))
    if not (encoder / CONFIG).is_file():
        raise InputError(
            f"{base.folder}: the base of these adapters is a run, which transformers does not load: start from its "
            "export, or leave out --format adapters"
        )
    weights = read_tensors(trained.checkpoint / checkpoint.WEIGHTS)
    adapters = {
        PEFT + name.removeprefix(TRUNK).replace(f".{NAME}.", "."): tensor
        for name, tensor in weights.items()
        if name.startswith(TRUNK) and LORA in name
    }
    save_tensors(adapters, folder / "adapter_model.safetensors")
    config = lora_config(trained.model.trunk, train.lora)
    config.target_modules = train.lora.targets  # it has them in any order
    config.base_model_name_or_path, config.task_type = str(encoder), "FEATURE_EXTRACTION"
    config.save_pretrained(str(folder))
    write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
    return CARD.format(**facts, base=encoder) + prompt_card(method)
