"""A cross-encoder as BertForSequenceClassification, which sentence-transformers' CrossEncoder loads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from deepsiam.models.trunk import token_types
from deepsiam.trainer.ranking.export.export_files import refuse, save_tensors, write_tokenizer
from deepsiam.trainer.training.checkpoints.load import TrainedModel

CARD = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags: [sentence-transformers, cross-encoder, text-classification, deepsiam]
---
# {name}

A cross-encoder trained with deepsiam, which {does}. It read queries of up to {query_tokens} tokens and documents of up
to {document_tokens}; the tokenizer cuts the longer of a pair to {pair_tokens} in all. From {run}, step {step}.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{out}")
print(model.predict([("a query", "a document"), ("a query", "another")]))
```

`transformers.AutoModelForSequenceClassification` loads the same folder.
"""


def write(trained: TrainedModel, method: CrossEncoderConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write the model, whose pooler and classifier are the head, and a tokenizer of pairs; return the README.md.

    Raises:
        InputError: BERT's sequence classifier would not compute the scores of this model.
    """
    trunk, head = trained.model.trunk, trained.model.heads
    beyond = {
        f"have a trunk of {trunk.config.model_type}": trunk.config.model_type != "bert",
        "pool all states (method.pooling)": method.pooling != "cls",
        "do without a hidden layer (method.hidden_layer=false)": not method.hidden_layer,
        "have another hidden layer (method.hidden_activation, method.hidden_norm)": method.hidden_norm
        or method.hidden_activation != "tanh",
        "keep the end of a text (method.kept_of_query)": method.kept_of_query != "start",
    }
    refuse(trained, "BERT's sequence classifier", beyond)
    config = copy.deepcopy(trunk.config)
    config.num_labels = method.classes or 1
    config.architectures = ["BertForSequenceClassification"]
    # CrossEncoder would put a single score through a sigmoid
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    state = {f"bert.{name}": tensor for name, tensor in trunk.state_dict().items()}
    names = {"head.0": "bert.pooler.dense", "head.3": "classifier"}
    for own, theirs in names.items():
        state |= {f"{theirs}.{part}": head[f"{own}.{part}"] for part in ("weight", "bias")}
    save_tensors(state, folder / "model.safetensors")
    config.save_pretrained(folder)
    (pair,) = method.input_lengths.values()
    around = method.pair_framing(trained.tokenizer).around
    # of token types only if the model tells the two texts apart by them
    types = ["token_type_ids"] if method.token_types and token_types(trunk) >= 2 else []
    write_tokenizer(trained.tokenizer, pair, folder, inputs=types, pair_frame=around)
    return CARD.format(
        **facts,
        does=f"predicts one of {method.classes} classes" if method.classes else "scores a document for a query",
        query_tokens=method.max_query_tokens,
        document_tokens=method.max_document_tokens,
        pair_tokens=pair,
    )
