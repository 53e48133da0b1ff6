"""A ColBERT in PyLate's layout, for PyLate's `models.ColBERT` and sentence-transformers' MultiVectorEncoder.

Both put the marker after [CLS], fill queries up with [MASK] and leave out the vectors of tokens in the skip list.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.trainer.ranking.export.export_files import (
    refuse,
    save_tensors,
    write_encoder,
    write_json,
    write_modules,
    write_tokenizer,
)
from deepsiam.trainer.training.checkpoints.load import TrainedModel

MODULES = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
CARD = """---
library_name: PyLate
pipeline_tag: sentence-similarity
tags: [ColBERT, PyLate, sentence-transformers, feature-extraction, deepsiam]
---
# {name}

A ColBERT trained with deepsiam: {dimension} dimensions for each token, queries of {query_tokens} tokens, documents up
to {tokens}. From {run}, step {step}.

```python
from pylate import models, scores

model = models.ColBERT("{out}")
queries = model.encode(["a query"], is_query=True, convert_to_tensor=True{query})
documents = model.encode(["a document", "another"], is_query=False, convert_to_tensor=True{document})
print([scores.colbert_scores(query[None], document[None]).item() for query in queries for document in documents])
```

sentence-transformers, from the version on that has a MultiVectorEncoder, loads the same folder:

```python
from sentence_transformers import MultiVectorEncoder

model = MultiVectorEncoder("{out}")
queries, documents = model.encode_query(["a query"]), model.encode_document(["a document", "another"])
print(model.similarity(queries, documents))
```
"""


def write(trained: TrainedModel, method: ColbertConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write encoder, tokenizer with the two markers, projection and settings; return the README.md.

    Raises:
        InputError: PyLate would not compute the scores of this model.
    """
    beyond = {
        "have an encoder of documents alone (method.towers=2)": method.towers == 2,
        "keep the end of a query alone (method.kept_of_query)": method.kept_of_query != "start",
    }
    refuse(trained, "PyLate", beyond)
    write_encoder(trained.model.trunk, folder)
    vocabulary = trained.tokenizer.vocabulary()
    query, document = markers = _markers(vocabulary)
    write_tokenizer(trained.tokenizer, method.max_document_tokens, folder, markers=markers)
    tokens = {i: token for token, i in vocabulary.items()}
    settings = {
        "model_type": "ColBERT",
        "similarity_fn_name": "MaxSim",
        "query_prefix": query,
        "document_prefix": document,
        "query_length": method.max_query_tokens,
        "document_length": method.max_document_tokens,
        "do_query_expansion": method.expansion != "none",
        "attend_to_expansion_tokens": method.expansion == "attended",
        "skiplist_words": [tokens[i] for i in method.skipped(trained.tokenizer)],
    }
    # the marker is added
    write_modules(folder, MODULES, method.max_document_tokens - 1, method.prompts(), settings)
    projection = trained.model.heads["projection.weight"]
    dense = {
        "in_features": projection.shape[1],
        "out_features": projection.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
        "use_residual": False,
    }
    write_json(folder / "1_Dense" / "config.json", dense)
    save_tensors({"linear.weight": projection}, folder / "1_Dense" / "model.safetensors")
    named = {side: f', prompt_name="{side}"' if method.prompts() else "" for side in ("query", "document")}
    return CARD.format(**facts, **named, dimension=method.dimension, query_tokens=method.max_query_tokens)


def _markers(vocabulary: Container[str]) -> tuple[str, str]:
    """Return new tokens for the markers: the tokenizer may be that of an earlier export, which has some.

    PyLate's "[Q] " would also be a marker inside a text.
    """
    numbers = chain([""], (f" {number}" for number in count(2)))
    names = ((f"[query marker{number}]", f"[document marker{number}]") for number in numbers)
    return next(pair for pair in names if pair[0] not in vocabulary and pair[1] not in vocabulary)
