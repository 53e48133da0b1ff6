"""A Siamese network as a SentenceTransformer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.trainer.ranking.export.export_files import (
    MODULES,
    refuse,
    write_encoder,
    write_modules,
    write_pooling,
    write_tokenizer,
)
from deepsiam.trainer.training.checkpoints.load import TrainedModel

CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity, deepsiam]
---
# {name}

A Siamese text encoder trained with deepsiam: {pooling} pooling, {similarity} similarity, {width} dimensions,
documents up to {tokens} tokens (queries were trained with up to {query_tokens}). From {run}, step {step}.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{out}")
queries, documents = model.encode(["a query"]{query}), model.encode(["a document", "another"]{document})
print(model.similarity(queries, documents))
```

`transformers.{loader}` and `AutoTokenizer` load the same folder; its `last_hidden_state` is what is pooled. The
`pooler_output` is not trained.
"""
CUT = """
It was trained to rank by the first {numbers} numbers of a vector, too:
`SentenceTransformer("{out}", truncate_dim={least})`.
"""


def write(trained: TrainedModel, method: SiameseConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write the encoder, and what makes it a SentenceTransformer: modules, similarity; return the README.md.

    Raises:
        InputError: a SentenceTransformer would not compute the embeddings of this model.
    """
    beyond = {
        "pool several special tokens": method.special_tokens > 1,
        "pool the first states alone": method.pooling == "first_m",
        "have a projection with LayerNorm": method.projection is not None,
        "have an encoder of documents alone (method.towers=2)": method.towers == 2,
        "read documents in chunks": method.document_chunks > 1,
        "keep the end of a query alone (method.kept_of_query)": method.kept_of_query != "start",
    }
    refuse(trained, "a SentenceTransformer", beyond)
    trunk = trained.model.trunk
    write_encoder(trunk, folder)
    write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
    types = {path: kind for path, kind in MODULES.items() if path != "2_Normalize" or method.similarity == "cosine"}
    cut = {"truncate_dim": method.dimensions[0]} if method.dimensions else {}
    settings = {"similarity_fn_name": method.similarity, **cut}
    write_modules(folder, types, method.max_document_tokens, method.prompts(), settings)
    write_pooling(folder, method.pooling, trunk.config.hidden_size, include_prompt=method.prompt_in_pooling)
    name = {"cls": "[CLS]", "mean": "mean", "last": "last-token"}[method.pooling]
    width, *smaller = method.dimensions or [trained.model.width]
    named = {side: f', prompt_name="{side}"' if method.prompts() else "" for side in ("query", "document")}
    facts = {**facts, **named, "width": width}
    card = CARD.format(**facts, pooling=name, similarity=method.similarity, query_tokens=method.max_query_tokens)
    if smaller:
        card += CUT.format(**facts, numbers=" or ".join(map(str, smaller)), least=smaller[-1])
    return card
