"""Read a sentence-transformers folder: where its encoder is, and how it computes and compares embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG, Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.trunk import max_positions
from deepsiam.trainer.interop.files import (
    LIBRARY_MODULES,
    refuse,
    write_encoder,
    write_modules,
    write_pooling,
    write_tokenizer,
)
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.prompts import prompts_of
from deepsiam.trainer.interop.settings import CONFIG, DENSE, MODULES, NORMALIZE, POOLING, SETTINGS
from deepsiam.trainer.interop.start import Opener
from deepsiam.trainer.interop.table import unused

POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}  # the library's name: ours
SWITCH = "pooling_mode_"  # before the name of a pooling, in older releases
NO_EFFECT = "Dropout"  # a module that does nothing outside of training
MIN_TEXT_TOKENS = 3  # tokens of a text that has one word
UNLIMITED = 1e20  # a longer text is transformers' way to say that there is no longest one
TEMPERATURE = 0.05  # 1 / 20, the scale of the library's losses for cosine similarities


def dimensions_of(folder: Folder, width: int) -> dict[str, Any]:
    """Return the key of how many numbers of a vector count, of `width`, where the library cuts vectors; else nothing.

    An export of ours also says which smaller numbers it was trained for.

    Raises:
        InputError: the number is not one, or vectors of length 1 would be cut and compared as they are then.
    """
    path, settings = folder.path / SETTINGS, folder.settings
    number = settings.get("truncate_dim")
    if number is None:
        return {}
    if type(number) is not int or number < 1:
        raise InputError(f"{path}: truncate_dim is {number!r:.80}, not a number of dimensions")
    if settings.get("similarity_fn_name") == "dot" and "Normalize" in folder.modules:
        raise InputError(
            f"{path}: truncate_dim cuts vectors that Normalize scales, for dot: set similarity_fn_name cosine"
        )
    number, trained = min(number, width), folder.mark.dimensions
    return {"dimensions": sorted({number, *(size for size in trained if size < number)}, reverse=True)}


def longest_texts(folder: Folder, positions: int) -> tuple[int, int]:
    """Return the longest query and document in tokens, [CLS] and [SEP] included, of an encoder with some positions.

    Raises:
        InputError: a length in the folder is not a number of tokens.
    """
    path, keys, limit = folder.transformer_file, folder.transformer, longest_input(folder)
    of_call = _length_of_call(path, keys, MIN_TEXT_TOKENS)
    query, document = (of_call or text_length(path, keys, f"{side}_length") or limit for side in ("query", "document"))
    query = folder.mark.max_query_tokens or query
    return min(query or positions, positions), min(document or positions, positions)


def longest_input(folder: Folder, min_tokens: int = MIN_TEXT_TOKENS, *, by_library: bool = True) -> int | None:
    """Return the longest text or pair in tokens, whatever is around it included; None if the folder sets no limit.

    Args:
        folder: a published one.
        min_tokens: the fewest tokens that an input has.
        by_library: whether sentence-transformers' own file counts.

    Raises:
        InputError: it is not a number of tokens, or below `min_tokens`.
    """
    path, tokenizer = folder.transformer_file, folder.encoder / TOKENIZER_CONFIG
    keys, config = folder.transformer if by_library else {}, folder.tokenizer_config
    of_tokenizer = "model_max_length" if "model_max_length" in config else "max_len"
    return (
        _length_of_call(path, keys, min_tokens)
        or text_length(path, keys, "max_seq_length", min_tokens)
        or text_length(tokenizer, config, of_tokenizer, min_tokens)
    )


def keys_of(start: Folder, method: MethodConfig) -> dict[str, Any]:
    """Return the pooling and the similarity of a folder that a method starts from, if it has them and sets no other.

    Raises:
        InputError: the folder is damaged, or has no such key and the recipe does not set it.
    """
    start_keys: dict[str, Any] = {}
    if "Pooling" not in start.modules:  # a ColBERT has none
        return start_keys
    for key, reader in (("pooling", pooling_of), ("similarity", similarity_of)):  # a temperature suits one similarity
        if key not in method.start_keys:
            continue
        is_set = key in method.model_fields_set
        try:
            folder_keys = reader(start)
        except InputError as error:
            if is_set:
                continue
            raise InputError(f"{error}: set method.{key} to start from the encoder alone") from None
        if not is_set or folder_keys[key] == getattr(method, key):
            start_keys |= folder_keys
    return start_keys


def pooling_of(folder: Folder) -> dict[str, Any]:
    """Return the key of a folder's pooling; raise InputError where its modules do more than pool and normalise."""
    path = folder.path / MODULES
    kinds = [kind for kind, _ in folder.steps if kind != NO_EFFECT]
    if "Pooling" not in folder.modules:
        raise InputError(f"{path}: has no Pooling module, which gives a text one vector: use another")
    if more_modules := {*kinds} - {"Transformer", "Pooling", "Normalize"}:
        raise InputError(f"{path}: has a {min(more_modules)} module, and only pooling and normalising are supported")
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InputError(f"{path}: its modules are {', '.join(kinds)}, not Transformer, Pooling, Normalize")
    if "Normalize" in kinds:
        config = folder.modules["Normalize"] / CONFIG
        unused(config, NORMALIZE, folder.keys(config, allow_absent=True), DENSE, to_rank=True)
    path = folder.modules["Pooling"] / CONFIG
    keys = folder.keys(path)
    unused(path, POOLING, keys, DENSE, to_rank=True)
    # a configuration names the pooling, or in older releases has one switch per pooling
    named_modes = keys.get("pooling_mode")
    modes = [named_modes] if isinstance(named_modes, str) else named_modes or []
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise InputError(f"{path}: pooling_mode is {named_modes!r:.80}, not a name or a list of names")
    new_names = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    switched_on = [key.removeprefix(SWITCH) for key, value in keys.items() if key.startswith(SWITCH) and value]
    if "pooling_mode" not in keys:
        modes = [new_names.get(name, name) for name in switched_on] or ["mean"]  # the library's default
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(f"{path}: its pooling is {' and '.join(modes) or 'none'}, not one of {', '.join(POOLINGS)}")
    return {"pooling": POOLINGS[modes[0]]}


def similarity_of(folder: Folder) -> dict[str, Any]:
    """Return the keys of the folder's similarity, dot or cosine; the library's default is cosine."""
    name = folder.settings.get("similarity_fn_name") or "cosine"
    if name not in ("cosine", "dot"):
        raise InputError(f"{folder.path / SETTINGS}: its similarity_fn_name is {name!r:.80}, not cosine or dot")
    if name == "cosine" or "Normalize" in folder.modules:
        return {"similarity": "cosine", "temperature": TEMPERATURE}
    return {"similarity": "dot"}


def _length_of_call(path: Path, keys: dict[str, Any], min_tokens: int) -> int | None:
    """Return the length with which the library calls the tokenizer, whatever other lengths there are."""
    calls = keys.get("processing_kwargs")
    options = [
        calls[name] for name in ("common", "text") if isinstance(calls, dict) and isinstance(calls.get(name), dict)
    ]
    return next(filter(None, (text_length(path, call, "max_length", min_tokens) for call in options)), None)


def text_length(path: Path, keys: dict[str, Any], key: str, min_tokens: int = MIN_TEXT_TOKENS) -> int | None:
    """Return a number of tokens; None if there is none, or no limit."""
    tokens = keys.get(key)
    if tokens is None or (isinstance(tokens, int | float) and tokens > UNLIMITED):
        return None
    if not isinstance(tokens, int) or tokens < min_tokens:
        raise InputError(f"{path}: {key} is {tokens!r:.80}, not a number of tokens from {min_tokens}")
    return tokens


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
CUT_CARD = """
It was trained to rank by the first {numbers} numbers of a vector, too:
`SentenceTransformer("{out}", truncate_dim={least})`.
"""


def load(folder: Folder, open_encoder: Opener) -> LoadedModel:
    """Load a folder's encoder into a Siamese network with the folder's pooling, similarity, prompts and text length.

    Raises:
        InputError: a file is damaged, or the model does more than pool and normalise, or has another setting that is
            not supported (`table.TABLE`).
    """
    keys = pooling_of(folder) | similarity_of(folder)
    trunk = open_encoder().trunk
    keys |= dimensions_of(folder, trunk.config.hidden_size) | prompts_of(folder, keys["pooling"], to_rank=True)
    return siamese(trunk, folder.tokenizer, folder.path, longest_texts(folder, max_positions(trunk)), keys)


def siamese(
    trunk: PreTrainedModel, tokenizer: Tokenizer, path: Path, lengths: tuple[int, int], keys: Mapping[str, Any]
) -> LoadedModel:
    """Put an encoder into a Siamese network that reads queries and documents up to their lengths in tokens."""
    method = SiameseConfig(name="siamese", max_query_tokens=lengths[0], max_document_tokens=lengths[1], **keys)
    with as_input_error(str(path / SETTINGS)):  # a prompt may leave no room for a text
        method.check_frame(tokenizer)
    with as_input_error("method"):
        model = method.model(trunk)
    return LoadedModel(model.eval(), method, tokenizer, path)


def write(trained: LoadedModel, method: SiameseConfig, folder: Path, facts: Mapping[str, Any]) -> str:
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
    types = {
        path: kind for path, kind in LIBRARY_MODULES.items() if path != "2_Normalize" or method.similarity == "cosine"
    }
    cut_keys = {"truncate_dim": method.dimensions[0]} if method.dimensions else {}
    settings = {"similarity_fn_name": method.similarity, **cut_keys}
    write_modules(folder, types, method.max_document_tokens, method.prompts(), settings)
    write_pooling(folder, method.pooling, trunk.config.hidden_size, include_prompt=method.prompt_in_pooling)
    name = {"cls": "[CLS]", "mean": "mean", "last": "last-token"}[method.pooling]
    width, *shorter_widths = method.dimensions or [trained.model.width]
    prompt_names = {side: f', prompt_name="{side}"' if method.prompts() else "" for side in ("query", "document")}
    facts = {**facts, **prompt_names, "width": width}
    card = CARD.format(**facts, pooling=name, similarity=method.similarity, query_tokens=method.max_query_tokens)
    if shorter_widths:
        card += CUT_CARD.format(**facts, numbers=" or ".join(map(str, shorter_widths)), least=shorter_widths[-1])
    return card
