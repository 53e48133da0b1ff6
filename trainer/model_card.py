"""The README.md of an exported model."""

from __future__ import annotations

from pathlib import Path

from trainer import method_keys
from trainer.trained import Trained

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

DECODER = """
`decoder.safetensors` holds what was trained beside the encoder; `decoder.json` says how to put both together.
"""


def text(trained: Trained, out: Path, with_decoder: bool) -> str:
    """What the model is, how to load it, and which run and step it is from."""
    method = trained.recipe.method
    facts = {
        "name": out.resolve().name,
        "out": out,
        "kind": trained.kind,
        "run": trained.recipe.run,
        "step": f"{trained.step:,}",
        "width": trained.model.trunk.config.hidden_size,
    }
    if isinstance(method, method_keys.Siamese):
        return SIAMESE.format(
            **facts,
            pooling={"cls": "[CLS]", "mean": "mean", "last": "last-token"}[method.pooling],
            similarity=method.similarity,
            tokens=method.max_document_tokens,
            query_tokens=method.max_query_tokens,
        )
    return PRETRAINED.format(**facts, tokens=method.positions) + (DECODER if with_decoder else "")
