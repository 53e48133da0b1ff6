"""Read and write what a published ColBERT has besides its encoder: projection, markers, prompts, lengths, settings.

PyLate names the tokens in query_prefix and document_prefix, sentence-transformers' MultiVectorEncoder in its prompts,
and Stanford's ColBERT in artifact.metadata.
"""

from __future__ import annotations

import string
from collections.abc import Container, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.config import MethodConfig, resize_embeddings
from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.models.trunk import max_positions, require_positions
from deepsiam.trainer.interop.files import (
    refuse,
    save_tensors,
    write_encoder,
    write_json,
    write_modules,
    write_tokenizer,
)
from deepsiam.trainer.interop.folder import WEIGHTS, Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.sentence_transformer import longest_texts, text_length
from deepsiam.trainer.interop.settings import CONFIG, METADATA, MODULES, SETTINGS
from deepsiam.trainer.interop.start import Opener

ARCHITECTURE = "HF_ColBERT"  # Stanford's
LINEAR_LAYER = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity", "use_residual": False}
DEFAULTS = {"bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}  # the libraries', for Dense
SIDES, PREFIXES = ("query", "document"), {"query_prefix", "document_prefix"}
QUERY_TOKENS = 32  # of a query that is filled up, where a folder does not say how many
# keys by which the library knows a folder of PyLate, whose queries are filled up unless it says otherwise
OF_PYLATE = {
    *("query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens"),
    *("attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words"),
}


def is_colbert(folder: Folder) -> bool:
    """Return whether a folder has a ColBERT: the library's modules with Dense and no Pooling, or Stanford's model."""
    if folder.has_modules:
        return "Dense" in folder.modules and "Pooling" not in folder.modules
    return folder.architecture == ARCHITECTURE


def start_keys(start: Folder, method: MethodConfig) -> dict[str, Any]:
    """Return the keys that a ColBERT takes from a folder of one."""
    return read_settings(start) | start_prompts(start)


def start_prompts(start: Folder) -> dict[str, str]:
    """Return the keys of the prompts that a ColBERT takes from a folder of the library; none from Stanford's."""
    return read_prompts(start) if start.has_modules else {}


def read_projection(folder: Folder) -> dict[str, Tensor]:
    """Return the weights of a ColBERT's linear layer, by their names in the model.

    Raises:
        InputError: the file is damaged, or the layer does more than multiply.
    """
    file = folder.path / WEIGHTS
    if folder.has_modules:
        dense = folder.modules["Dense"]
        settings, file = folder.keys(dense / CONFIG), dense / WEIGHTS
        for key, linear_value in LINEAR_LAYER.items():
            if (value := settings.get(key, DEFAULTS.get(key, linear_value))) != linear_value:
                raise InputError(f"{dense / CONFIG}: {key}: {value!r}: only a linear layer is supported")
    weight = folder.tensors(file).get("linear.weight")
    if weight is None or weight.ndim != 2:
        raise InputError(f"{file}: has no matrix linear.weight, the projection of a ColBERT; copy the folder again")
    return {"projection.weight": weight}


def read_markers(folder: Folder) -> tuple[int, ...]:
    """Return the ids of the tokens that mark queries and documents; none if texts are marked by none, or by words."""
    vocabulary = folder.tokenizer.vocabulary()
    ids = tuple(None if token is None else vocabulary[token] for token, _ in _marks(folder).values())
    return tuple(i for i in ids if i is not None) if None not in ids else ()


def read_prompts(folder: Folder) -> dict[str, str]:
    """Return the keys of the texts between the markers and a query or document; those without markers are not taken."""
    marks = _marks(folder)
    if any(token is None for token, _ in marks.values()):
        return {}
    return {f"{side}_prompt": text for side, (_, text) in marks.items() if text}


def unmarked_prompts(folder: Folder) -> dict[str, str]:
    """Return the texts before queries and documents that are not taken, since no token marks both sides."""
    texts = _texts_before(folder)
    return texts if any(texts.values()) and not read_markers(folder) else {}


def read_settings(folder: Folder) -> dict[str, Any]:
    """Return the keys by which a ColBERT computes what a folder's model does, without its prompts and lengths of text.

    Raises:
        InputError: its modules do more than a ColBERT of this project does.
    """
    (projection,), path = read_projection(folder).values(), folder.path
    expansion, words = _of_library(folder) if folder.has_modules else _stanford(folder)
    keys: dict[str, Any] = {"dimension": len(projection), "expansion": "none"}
    if expansion is not None:
        length = expansion.get("length")
        if type(length) is not int or length < 4:
            raise InputError(f"{path}: its queries are filled up to {length!r:.80} tokens, not to a number from 4")
        keys["expansion"] = "attended" if expansion.get("attend") else "unattended"
        keys["max_query_tokens"] = length
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{path}: skiplist_words is {words!r:.80}, not a list of tokens")
    vocabulary = folder.tokenizer.vocabulary()
    skipped = tuple(word for word in dict.fromkeys(words) if word in vocabulary)
    by_default = {vocabulary[word] for word in skipped} == set(folder.tokenizer.punctuation)
    return {**keys, "skip_list": None if by_default else skipped}


def read_lengths(folder: Folder, positions: int) -> dict[str, int]:
    """Return the keys of the longest query and document, of an encoder with some positions.

    Raises:
        InputError: a length in the folder is not a number of tokens.
    """
    keys, module = {}, folder.transformer
    path, names = folder.path / SETTINGS, {"query": "query_length", "document": "document_length"}
    if not folder.has_modules:
        path, names = folder.path / METADATA, {"query": "query_maxlen", "document": "doc_maxlen"}
    lengths = folder.keys(path, allow_absent=True)
    for side, limit in zip(SIDES, longest_texts(folder, positions), strict=True):
        is_overruled = module.get(f"{side}_length") or module.get("processing_kwargs")
        length = None if is_overruled else text_length(path, lengths, names[side])
        keys[f"max_{side}_tokens"] = min(length or limit, positions)
    return keys


def _stanford(folder: Folder) -> tuple[dict[str, Any], list[str]]:
    """Return how Stanford's ColBERT fills up queries, and the tokens of documents that have no vector."""
    metadata = folder.keys(folder.path / METADATA, allow_absent=True)
    expansion = {
        "attend": metadata.get("attend_to_mask_tokens"),
        "length": metadata.get("query_maxlen") or QUERY_TOKENS,
    }
    return expansion, list(string.punctuation) if metadata.get("mask_punctuation", True) else []


def _of_library(folder: Folder) -> tuple[dict[str, Any] | None, Any]:
    """Return how the library fills up queries, if it does, and the tokens of documents that have no vector."""
    path, kinds, settings = folder.path / MODULES, [kind for kind, _ in folder.steps], folder.settings
    model_type = settings.get("model_type")
    if kinds.count("Dense") > 1:
        raise InputError(f"{path}: has {kinds.count('Dense')} Dense modules: only one layer is supported")
    if "Normalize" not in kinds and model_type == "MultiVectorEncoder":
        raise InputError(f"{path}: has no Normalize module: only vectors of length 1 are supported")
    module = folder.transformer
    if "query_expansion" in module or "query_expansion" in settings:
        expansion = module.get("query_expansion", settings.get("query_expansion"))
    elif OF_PYLATE & settings.keys() and settings.get("do_query_expansion") is not False:
        attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
        expansion = {"attend": attend, "length": settings.get("query_length") or QUERY_TOKENS}
    else:
        expansion = None
    if expansion is not None and not isinstance(expansion, dict):
        raise InputError(f"{folder.path}: query_expansion is {expansion!r:.80}, not a table")
    if "MultiVectorMask" in folder.modules:
        mask = folder.modules["MultiVectorMask"] / CONFIG
        return expansion, folder.keys(mask, allow_absent=True).get("skiplist_words") or []
    if model_type == "MultiVectorEncoder":  # what is not attended to has no vector, and nothing is skipped
        return expansion if expansion and expansion.get("attend") else None, []
    words = settings.get("skiplist_words")
    by_default = [*string.punctuation] if model_type == "ColBERT" or PREFIXES & settings.keys() else []
    return expansion, by_default if words is None else words


def _marks(folder: Folder) -> dict[str, tuple[str | None, str]]:
    """Return, for each side, the token that stands before its texts, if it is one, and the text after that."""
    prefixes = {side: str(folder.settings.get(f"{side}_prefix") or "") for side in SIDES}
    return {side: _split(text, prefixes[side], folder.tokenizer) for side, text in _texts_before(folder).items()}


def _split(text: str, prefix: str, tokenizer: Tokenizer) -> tuple[str | None, str]:
    """Return the token that a text begins with, and the rest, if it is read; PyLate's tokens end in a blank.

    A folder may name the token as a `prefix`; it can have blanks in it.
    """
    vocabulary = tokenizer.vocabulary()
    for token in (prefix, prefix.strip(), text, text.strip(), *text.split()[:1]):
        if token and token in vocabulary:
            text_after = text.partition(token)[2]
            return token, text_after if text_after.strip() or _is_read(text_after, token, tokenizer) else ""
    return None, text


def _is_read(blank: str, token: str, tokenizer: Tokenizer) -> bool:
    """Return whether white space after a token has ids: a BPE of bytes joins it with the text, a WordPiece has none."""
    with_blank, without_blank = tokenizer.encode([token + blank, token])
    return bool(tokenizer.prompt(blank).ids) and not np.array_equal(with_blank, without_blank)


def _texts_before(folder: Folder) -> dict[str, str]:
    """Return what stands before the texts of each side."""
    if not folder.has_modules:
        metadata = folder.keys(folder.path / METADATA, allow_absent=True)
        names = metadata.get("query_token_id") or "[unused0]", metadata.get("doc_token_id") or "[unused1]"
        return dict(zip(SIDES, map(str, names), strict=True))
    settings = folder.settings
    prompts: Any = settings.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    texts = {}
    for side in SIDES:
        prefix, prompt = str(settings.get(f"{side}_prefix") or ""), str(prompts.get(side) or "")
        texts[side] = prefix + prompt.removeprefix(prefix)
    return texts


PYLATE_MODULES = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
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


def load(folder: Folder, open_encoder: Opener) -> LoadedModel:
    """Load a folder's ColBERT, with its markers, its [MASK]s after queries and its skip list.

    Raises:
        InputError: a file is damaged, or the model does more than ours, or no token marks queries and documents.
    """
    encoder, path = open_encoder(), folder.path
    if not encoder.marker_rows:
        raise InputError(f"{path / SETTINGS}: no token marks queries and documents: fine-tune it first, with init_from")
    lengths = read_lengths(folder, max_positions(encoder.trunk))
    keys = read_settings(folder) | read_prompts(folder)
    method = ColbertConfig(name="colbert", **{**lengths, **keys})
    with as_input_error(str(path / SETTINGS)):  # a prompt may leave no room for a text
        method.check_frame(folder.tokenizer)
    with as_input_error(f"{path}: the length of queries"):
        require_positions(encoder.trunk, method.max_query_tokens)
    resize_embeddings(method, encoder.trunk, folder.tokenizer, encoder.rows_for(method))
    with as_input_error("method"):
        model = method.model(encoder.trunk)
    encoder.fill_heads(model, method)
    return LoadedModel(model.eval(), method, folder.tokenizer, path)


def write(trained: LoadedModel, method: ColbertConfig, folder: Path, facts: Mapping[str, Any]) -> str:
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
    write_modules(folder, PYLATE_MODULES, method.max_document_tokens - 1, method.prompts(), settings)
    projection = trained.model.heads["projection.weight"]
    dense = {
        "in_features": projection.shape[1],
        "out_features": projection.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
        "use_residual": False,
    }
    write_json(folder / "1_Dense" / CONFIG, dense)
    save_tensors({"linear.weight": projection}, folder / "1_Dense" / WEIGHTS)
    prompt_names = {side: f', prompt_name="{side}"' if method.prompts() else "" for side in ("query", "document")}
    return CARD.format(**facts, **prompt_names, dimension=method.dimension, query_tokens=method.max_query_tokens)


def _markers(vocabulary: Container[str]) -> tuple[str, str]:
    """Return new tokens for the markers: the tokenizer may be that of an earlier export, which has some.

    PyLate's "[Q] " would also be a marker inside a text.
    """
    numbers = chain([""], (f" {number}" for number in count(2)))
    names = ((f"[query marker{number}]", f"[document marker{number}]") for number in numbers)
    return next(pair for pair in names if pair[0] not in vocabulary and pair[1] not in vocabulary)
