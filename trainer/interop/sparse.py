"""A sparse model as sentence-transformers' SparseEncoder: a masked LM, SpladePooling, and SparseStaticEmbedding.

SparseStaticEmbedding gives the tokens of a text a weight each and all others 0: after SpladePooling, with weights of 1,
it keeps a text's own terms; alone it weighs a query's tokens. A Router holds the modules of queries and documents that
differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.sparse import Sparse, SparseConfig
from deepsiam.trainer.interop import prompts
from deepsiam.trainer.interop.files import (
    refuse,
    save_tensors,
    write_json,
    write_modules,
    write_tokenizer,
)
from deepsiam.trainer.interop.folder import WEIGHTS, Folder
from deepsiam.trainer.interop.masked_lm import masked_lm_for, write_masked_lm
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import CONFIG, TRANSFORMER

MODULES = {  # class names that every version resolves
    "mlm": "sentence_transformers.sparse_encoder.models.MLMTransformer",
    "pooling": "sentence_transformers.sparse_encoder.models.SpladePooling",
    "own": "sentence_transformers.sparse_encoder.models.SparseStaticEmbedding",
    "router": "sentence_transformers.models.Router",
}
SPARSE_MODULES = {"SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity"}  # weights of terms
NEVER = -1e4  # an output bias that leaves a term without a weight
CARD = """---
library_name: sentence-transformers
pipeline_tag: feature-extraction
tags: [sentence-transformers, sparse-encoder, sparse, splade, deepsiam]
---
# {name}

A sparse encoder trained with deepsiam: weights for {terms:,} terms, documents up to {tokens} tokens (queries were
trained with up to {query_tokens}). From {run}, step {step}.

```python
from sentence_transformers import SparseEncoder

model = SparseEncoder("{out}")
queries, documents = model.encode_query(["a query"]), model.encode_document(["a document", "another"])
print(model.similarity(queries, documents))
print(model.decode(documents, top_k=10))
```
"""
TOKENS = """
A query is its tokens without stop words, each with weight 1: it needs no model. The library counts a token once that a
query repeats; in training it counted each time.
"""
TABLE = """
A query is its tokens, each with a weight of its own: it needs no model.
"""


def is_mine(folder: Folder) -> bool:
    """Return whether a folder is a SparseEncoder."""
    return bool(SPARSE_MODULES & folder.modules.keys())


def start_keys(start: Folder, method: MethodConfig) -> dict[str, Any]:
    """Return the keys that a sparse model takes from a SparseEncoder with SpladePooling; nothing from others.

    Raises:
        InputError: the folder is damaged, or the pooling is not max or sum.
    """
    if "SpladePooling" not in start.modules:  # it only looks tokens up
        return {}
    path = start.modules["SpladePooling"] / CONFIG
    pooling = start.keys(path, allow_absent=True).get("pooling_strategy", "max")
    if pooling not in ("max", "sum"):
        raise InputError(f"{path}: pooling_strategy is {pooling!r:.80}, not max or sum")
    return {"pooling": pooling, **prompts.keys_of(start, method, "")}


def write(trained: LoadedModel, method: SparseConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write masked LM, tokenizer and modules; return the README.md.

    Raises:
        InputError: a SparseEncoder would not compute the weights of this model.
    """
    trunk, vocabulary = trained.model.trunk, trained.tokenizer.vocab_size
    looks_up = method.query != "encoder" or method.document == "own_tokens"
    beyond = {
        f"have a masked LM of {trunk.config.model_type}": masked_lm_for(trunk) is None,
        "weigh tokens by a linear layer (method.head=linear)": method.head == "linear",
        "keep the end of a query alone (method.kept_of_query)": method.kept_of_query != "start",
        "look up more tokens than the tokenizer has": looks_up and trunk.config.vocab_size != vocabulary,
    }
    refuse(trained, "a SparseEncoder", beyond)
    chains = {"query": _chain(method.query, "mlm"), "document": _chain(method.document, "mlm")}
    if method.towers == 2:
        chains["query"] = _chain(method.query, "query_mlm")
    settings = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
    if chains["query"] == chains["document"]:
        names = [f"{place}_{name}" if place else "" for place, name in enumerate(chains["document"])]
        types = dict(zip(names, map(_type, chains["document"]), strict=True))
        folders = dict(zip(chains["document"], names, strict=True))
    else:
        types, folders = {"": MODULES["router"]}, {name: name for chain in chains.values() for name in chain}
        structure = {route: list(chain) for route, chain in chains.items()}
        router = {"types": {name: _type(name) for name in folders}, "structure": structure}
        parameters = {"default_route": "document", "allow_empty_key": True}
        write_json(folder / "router_config.json", {**router, "parameters": parameters})
    write_modules(folder, types, method.max_document_tokens, method.prompts(), settings)
    for name, where in folders.items():
        (folder / where).mkdir(exist_ok=True)
        _write_module(trained, method, name, folder / where)
    card = CARD.format(**facts, terms=trunk.config.vocab_size, query_tokens=method.max_query_tokens)
    return card + ("" if method.encodes_queries else TOKENS if method.query == "tokens" else TABLE)


def _chain(side: str, mlm: str) -> tuple[str, ...]:
    """Return the modules of a side, by the value of its key."""
    without_encoder = dict.fromkeys(("tokens", "idf", "table"), ("tokens",))
    return {**without_encoder, "own_tokens": (mlm, "pooling", "own")}.get(side, (mlm, "pooling"))


def _type(name: str) -> str:
    return MODULES[{"query_mlm": "mlm", "tokens": "own"}.get(name, name)]


def _write_module(trained: LoadedModel, method: SparseConfig, name: str, folder: Path) -> None:
    model, tokenizer = trained.model, trained.tokenizer
    assert isinstance(model, Sparse)
    if name == "pooling":
        terms = {"embedding_dimension": None, "word_embedding_dimension": model.trunk.config.vocab_size}
        write_json(folder / CONFIG, {"pooling_strategy": method.pooling, "activation_function": "relu", **terms})
    elif name in ("own", "tokens"):
        weights = torch.ones(tokenizer.vocab_size)
        if name == "tokens" and method.query != "tokens":
            weights = model.query_table(torch.arange(tokenizer.vocab_size)[None], model.trunk)[0].detach().clone()
        without = tokenizer.stop_words if name == method.query == "tokens" else ()
        weights[[*tokenizer.special, *without]] = 0
        save_tensors({"weight": weights}, folder / WEIGHTS)
        write_json(folder / CONFIG, {"frozen": True})
        write_tokenizer(tokenizer, 1 << 20, folder)  # stop words do not count, so a cut at a number of tokens would
    else:
        trunk = model.trunk if name == "query_mlm" or method.towers == 1 else model.tower("document")
        bias = model.lm_head.bias.detach().clone()
        bias[list(tokenizer.special)] = NEVER
        write_masked_lm(trunk, {**model.lm_head.state_dict(), "bias": bias}, folder)
        max_tokens = method.max_query_tokens if name == "query_mlm" else method.max_document_tokens
        write_tokenizer(tokenizer, max_tokens, folder)
        write_json(folder / TRANSFORMER, {"max_seq_length": max_tokens, "do_lower_case": False})
