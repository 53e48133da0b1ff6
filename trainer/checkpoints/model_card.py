"""The README.md of an exported model."""

from __future__ import annotations

from pathlib import Path

from models.matching.cross_encoder import CrossEncoderConfig
from models.matching.siamese import SiameseConfig
from trainer.checkpoints.load import TrainedModel

SIAMESE = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity, deepsiam]
---
# {name}

A Siamese text encoder trained with deepsiam: {pooling} pooling, {similarity} similarity, {width} dimensions,
documents up to {tokens} tokens (queries were trained with up to {query_tokens}). From `{run}`, step {step}.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{out}")
queries, documents = model.encode(["a query"]), model.encode(["a document", "another"])
print(model.similarity(queries, documents))
```

`transformers.AutoModel` and `AutoTokenizer` load the same folder; its `last_hidden_state` is what is pooled. The
`pooler_output` is not trained.
"""

CROSS_ENCODER = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags: [sentence-transformers, cross-encoder, text-classification, deepsiam]
---
# {name}

A cross-encoder trained with deepsiam, which {does}. It read queries of up to {query_tokens} tokens and documents of up
to {document_tokens}; the tokenizer cuts the longer of a pair to {pair_tokens} in all. From `{run}`, step {step}.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{out}")
print(model.predict([("a query", "a document"), ("a query", "another")]))
```

`transformers.AutoModelForSequenceClassification` loads the same folder.
"""

PRETRAINED = """---
library_name: transformers
tags: [feature-extraction, deepsiam]
---
# {name}

A text encoder pre-trained with deepsiam ({kind}), {width} dimensions, texts up to {tokens} tokens. From `{run}`,
step {step}. It has learned no similarity of texts yet: fine-tune it before using it for search.

```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{out}"), AutoModel.from_pretrained("{out}")
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

DECODER = """
`decoder.safetensors` has the heads that were trained with the encoder; `decoder.json` shows how to load both.
"""


def text(trained: TrainedModel, out: Path, with_decoder: bool) -> str:
    """The card: what the model is, how to load it, and which run and step it is from."""
    method = trained.method
    width = trained.model.trunk.config.hidden_size
    facts = {
        "name": out.resolve().name,
        "out": out,
        "kind": trained.kind,
        "run": trained.recipe.run,
        "step": f"{trained.step:,}",
        "width": width,
        "tokens": trained.text_tokens,
    }
    if isinstance(method, SiameseConfig):
        return SIAMESE.format(
            **facts,
            pooling={"cls": "[CLS]", "mean": "mean", "last": "last-token"}[method.pooling],
            similarity=method.similarity,
            query_tokens=method.max_query_tokens,
        )
    if isinstance(method, CrossEncoderConfig):
        return CROSS_ENCODER.format(
            **facts,
            does=f"tells {method.classes} classes" if method.classes else "scores a document for a query",
            query_tokens=method.max_query_tokens,
            document_tokens=method.max_document_tokens,
            pair_tokens=next(iter(method.input_lengths.values())),
        )
    card = PRETRAINED.format(**facts)
    if (special := 1 + method.added_tokens) > 1:
        first, own = trained.tokenizer.vocab_size, special - 1
        card += OWN_TOKENS.format(
            own=own, first=first, last=first + own - 1, special=special, all_width=special * width
        )
    return card + (DECODER if with_decoder else "")
