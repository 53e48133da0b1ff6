"""Read a cross-encoder as Hugging Face and sentence-transformers' CrossEncoder write it: `…ForSequenceClassification`.

What the folder says about a pair's score is applied, so that it is the score of `CrossEncoder.predict`: the layers of
the head, how the two texts are joined, and cut where they are too long, and the activation at the end. What cannot be
computed exactly is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG
from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.cross_encoder import Activation, CrossEncoderConfig
from deepsiam.models.trunk import max_positions, token_types
from deepsiam.trainer.interop.files import class_for, refuse, write_headed, write_tokenizer
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.prompts import refuse_prompts
from deepsiam.trainer.interop.sentence_transformer import longest_input
from deepsiam.trainer.interop.settings import CONFIG, MODEL_TYPES, MODULES, PAIRS, SETTINGS
from deepsiam.trainer.interop.start import Opener, PretrainedEncoder

CLASSIFIER = "ForSequenceClassification"  # the end of the names of Hugging Face's classes
MIN_PAIR_TOKENS = 8  # tokens of a pair of short texts
PROBE = ("Naïve, b", "c")
ACTIVATIONS = {"Identity": nn.Identity, "Sigmoid": nn.Sigmoid}  # of the scores


@dataclass(frozen=True)
class Head:
    """The tensors of a model type's head, and what it computes from the first state: hidden layer, output layer."""

    hidden: str  # "": there is none
    output: str = "classifier"
    activation: str = "tanh"  # of the hidden layer; or the key of the configuration that names it
    norm: str = ""  # a LayerNorm after the activation
    pooling: str = "cls"  # unless the configuration has classifier_pooling
    first_state: str = "cls"  # what classifier_pooling calls pooling cls
    biases: bool = True  # whether files always have them

    @property
    def names(self) -> dict[str, str]:
        """The names of its layers in a file, by those in `deepsiam.models.matching.cross_encoder.CrossEncoder`."""
        if not self.hidden:
            return {"head.1": self.output}
        norm = {"head.2": self.norm} if self.norm else {}
        return {"head.0": self.hidden, **norm, f"head.{3 + len(norm)}": self.output}


PARTS = ("weight", "bias")
ROBERTA = Head("classifier.dense", "classifier.out_proj")
DEBERTA = Head("pooler.dense", activation="pooler_hidden_act")
HEADS = {
    "albert": Head("albert.pooler"),
    "bert": Head("bert.pooler.dense"),
    "camembert": ROBERTA,
    "data2vec-text": ROBERTA,
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA,
    "distilbert": Head("pre_classifier", activation="relu"),
    "electra": Head("classifier.dense", "classifier.out_proj", activation="gelu"),
    "eurobert": Head("dense", activation="gelu", first_state="bos"),
    "gte": Head("gte.pooler.dense"),
    "megatron-bert": Head("bert.pooler.dense"),
    "modernbert": Head("head.dense", activation="classifier_activation", norm="head.norm", biases=False),
    "mpnet": ROBERTA,
    "nomic_bert": Head("nomic_bert.pooler.dense"),
    "qwen3": Head("", "score", pooling="last", biases=False),
    "rembert": Head("rembert.pooler.dense"),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": ROBERTA,
}


@dataclass(frozen=True)
class CrossEncoderFolder:
    """What a folder says.

    Attributes:
        labels: how many numbers a pair gets: 1 is a score, more are the logits of classes.
        keys: of the method, without the lengths of the single texts.
        activation: of a score.
        classes: their names, in the order of the logits; none if the folder has only numbers.
    """

    labels: int
    keys: dict[str, Any]
    activation: nn.Module
    classes: tuple[str, ...]


def is_cross_encoder(folder: Folder) -> bool:
    """Return whether a folder has a model that reads pairs; one with a Pooling module embeds single texts."""
    return "Pooling" not in folder.modules and folder.architecture.endswith(CLASSIFIER)


def is_of_library(folder: Folder) -> bool:
    """Return whether CrossEncoder saved a folder's modules: of any other, it reads what transformers reads alone."""
    return folder.settings.get("model_type") in MODEL_TYPES[PAIRS] and folder.has_modules


def read(folder: Folder) -> CrossEncoderFolder:
    """Read how a folder's model scores a pair.

    Raises:
        InputError: a file is damaged, or the model is of another kind than those of `HEADS`.
    """
    if more_modules := folder.modules.keys() - {"Transformer"}:
        raise InputError(
            f"{folder.path / MODULES}: has a {min(more_modules)} module, and only the encoder's head is supported"
        )
    if folder.has_modules:
        refuse_prompts(folder)
    path, config = folder.encoder / CONFIG, folder.config
    kind, architecture = config.model_type, folder.architecture
    if kind not in HEADS or architecture != CLASSIFIERS[kind]:
        raise InputError(
            f"{path}: architectures {architecture}, model_type {kind!r}: a cross-encoder whose head is not supported; "
            f"those of {', '.join(sorted(HEADS))} are"
        )
    head = HEADS[kind]
    activation, pooling = str(getattr(config, head.activation, head.activation)), head.pooling
    if activation not in get_args(Activation):
        raise InputError(f"{path}: {head.activation}: {activation!r} is not one of {', '.join(get_args(Activation))}")
    if (library_pooling := getattr(config, "classifier_pooling", None)) is not None:
        if library_pooling not in (head.first_state, "mean"):
            raise InputError(f"{path}: classifier_pooling: {library_pooling!r} is not {head.first_state} or mean")
        pooling = "mean" if library_pooling == "mean" else "cls"
    layer: dict[str, Any] = {"hidden_layer": False}
    if head.hidden:
        layer = {"hidden_activation": activation, "hidden_norm": bool(head.norm)}
    keys = {"pooling": pooling, **layer, **_keys_of_pairs(folder)}
    labels = int(config.num_labels or 0)
    return CrossEncoderFolder(labels, keys, _activation(folder, labels), class_names(config))


def start_keys(start: Folder, method: MethodConfig) -> dict[str, Any]:
    """Return the keys that a model of pairs takes from a folder of one; of the hidden layer if it has one."""
    has_layer = getattr(method, "hidden_layer", True)
    return {key: value for key, value in read(start).keys.items() if has_layer or not key.startswith("hidden_")}


def class_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a configuration's classes, in the order of the logits; none if they are only numbered."""
    names_by_number = {int(number): str(name) for number, name in (config.id2label or {}).items()}
    names = tuple(name for _, name in sorted(names_by_number.items()))
    return () if names == tuple(f"LABEL_{i}" for i in range(len(names))) else names


def order_classes(encoder: PretrainedEncoder, classes: Sequence[str]) -> list[str]:
    """Bring the last layer of a classifier into the order of these classes, or remove it where it has others.

    Return a line that says so, where it was not in this order before.
    """
    folder_classes, run_names = class_names(encoder.trunk.config), [name.casefold() for name in classes]
    layers = {name.rpartition(".")[0] for name in encoder.heads if name.startswith("head.")}
    if not folder_classes or not layers or (folder_names := [name.casefold() for name in folder_classes]) == run_names:
        return []
    for name in [name for name in encoder.heads if name.startswith(f"{max(layers)}.")]:
        rows = encoder.heads.pop(name)
        if sorted(folder_names) == sorted(run_names):
            encoder.heads[name] = rows[[folder_names.index(name) for name in run_names]]
    change = "is brought into their order" if sorted(folder_names) == sorted(run_names) else "is new"
    return [
        f"{encoder.path} has the classes {', '.join(folder_classes)}; of {', '.join(classes)}, the last layer {change}"
    ]


def read_heads(folder: Folder) -> dict[str, Tensor]:
    """Return the weights of a cross-encoder's head, by their names in the model; none for a model without a known head.

    Raises:
        InputError: one is missing, or has another shape than the configuration says.
    """
    config = folder.config
    head, width, labels = HEADS.get(config.model_type), int(config.hidden_size), int(config.num_labels or 0)
    if head is None or not folder.architecture.endswith(CLASSIFIER):
        return {}
    weights = folder.weights
    head_weights = {}
    for layer, library_layer in head.names.items():
        rows = labels if library_layer == head.output else width
        shapes = {"weight": [rows] if library_layer == head.norm else [rows, width], "bias": [rows]}
        for part, shape in shapes.items():
            tensor = weights.get(f"{library_layer}.{part}")
            if tensor is None and part == "bias" and not head.biases:
                tensor = torch.zeros(shape)
            if tensor is None or list(tensor.shape) != shape:
                fault = "is missing" if tensor is None else f"is {list(tensor.shape)}, {CONFIG} has {shape}"
                raise InputError(f"{folder.encoder}: {library_layer}.{part} of the head {fault}; copy the folder again")
            head_weights[f"{layer}.{part}"] = tensor
    return head_weights


def _activation(folder: Folder, labels: int) -> nn.Module:
    """Return what the library applies to a score: versions 2 and 3, 4 and 5, 6 say it in other places."""
    path, settings = folder.encoder, folder.settings if folder.has_modules else {}
    config = folder.keys(path / CONFIG)
    block = config.get("sentence_transformers")
    named_in = {
        f"{SETTINGS}: activation_fn": settings.get("activation_fn"),
        f"{CONFIG}: sentence_transformers.activation_fn": block.get("activation_fn")
        if isinstance(block, dict)
        else None,
        f"{CONFIG}: sbert_ce_default_activation_function": config.get("sbert_ce_default_activation_function"),
    }
    for where, name in named_in.items():
        if name is not None:
            package, _, class_name = str(name).rpartition(".")
            if not package.startswith("torch.nn") or class_name not in ACTIVATIONS:
                raise InputError(f"{path}/{where}: {name!r} is not supported: Identity and Sigmoid of torch.nn are")
            return ACTIVATIONS[class_name]()
    return nn.Sigmoid() if labels == 1 else nn.Identity()  # the library's defaults


def _keys_of_pairs(folder: Folder) -> dict[str, Any]:
    """Return how a folder's tokenizer joins two texts, as the library would: by running it.

    Raises:
        InputError: it cannot be loaded, joins them otherwise than its tokenizer.json does, or cuts at the start.
    """
    tokenizer, where = folder.tokenizer, folder.encoder / TOKENIZER_CONFIG
    try:
        library = AutoTokenizer.from_pretrained(folder.encoder, local_files_only=True, trust_remote_code=False)
        encoding = library(*PROBE)
    except Exception as error:  # transformers documents no errors, and the tokenizers package raises plain Exception
        raise InputError(f"{where}: not the tokenizer of an encoder ({' '.join(str(error).split()):.200})") from None
    query_ids, document_ids = (text.tolist() for text in tokenizer.encode(PROBE))
    ids, types = encoding["input_ids"], encoding.get("token_type_ids")
    start, between, end = tokenizer.pair_frame
    query, document = [*start, *query_ids, *between], [*document_ids, *end]
    if query + document != ids or types not in (None, [0] * len(ids), [0] * len(query) + [1] * len(document)):
        raise InputError(
            f"{where}: joins two texts as {tokenizer.decode(ids)!r}, with token types {types}; "
            f"{tokenizer.decode(query + document)!r}, as tokenizer.json does, with type 1 from the second text on, or "
            "no types, is supported"
        )
    if library.truncation_side != "right":
        raise InputError(f"{where}: truncation_side: {library.truncation_side!r} is not supported, right is")
    limit = longest_input(folder, MIN_PAIR_TOKENS, by_library=is_of_library(folder))
    return {"token_types": types is not None and any(types), "max_pair_tokens": limit}


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


def load(folder: Folder, open_encoder: Opener) -> LoadedModel:
    """Load a folder's cross-encoder: a score, or the logits of classes, as sentence-transformers predicts them.

    Raises:
        InputError: a file is damaged, or the model is of another kind than those that can be computed exactly.
    """
    about, encoder = read(folder), open_encoder()
    tokens = min(about.keys["max_pair_tokens"] or max_positions(encoder.trunk), max_positions(encoder.trunk))
    lengths = dict.fromkeys(("max_query_tokens", "max_document_tokens", "max_pair_tokens"), tokens)
    of_labels = {"loss": "classes", "classes": about.labels} if about.labels > 1 else {"loss": "binary"}
    method = CrossEncoderConfig(name="cross_encoder", **{**about.keys, **lengths, **of_labels})
    with as_input_error("method"):
        model = method.model(encoder.trunk)
    encoder.fill_heads(model, method)
    model.activation = about.activation
    return LoadedModel(model.eval(), method, folder.tokenizer, folder.path, classes=about.classes)


def write(trained: LoadedModel, method: CrossEncoderConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write transformers' classifier for the type of the trunk, and a tokenizer of pairs; return the README.md.

    Raises:
        InputError: that class would not compute the scores of this model.
    """
    trunk, head = trained.model.trunk, trained.model.heads
    kind, model = trunk.config.model_type, class_for(trunk, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING)
    layers = HEADS.get(kind) if model else None
    refuse(trained, "a sequence classifier", {f"have a trunk of {kind}": layers is None})
    assert model is not None
    assert layers is not None
    config = model.config
    pools_any, activates_any = hasattr(config, "classifier_pooling"), hasattr(config, layers.activation)
    pooling = {"cls": layers.first_state, "mean": "mean"}.get(method.pooling)
    names = {
        f"{layer}.{part}": f"{library_layer}.{part}" for layer, library_layer in layers.names.items() for part in PARTS
    }
    unwritten = [
        layer
        for layer, library_layer in names.items()
        if library_layer not in model.state_dict() and layer in head and head[layer].any()
    ]
    other_norm = method.hidden_norm != bool(layers.norm)
    other_activation = not activates_any and method.hidden_activation != layers.activation
    without = "do without a hidden layer (method.hidden_layer=false)"
    beyond = {
        "pool all states (method.pooling)": pooling is None if pools_any else method.pooling != layers.pooling,
        without if layers.hidden else "have a hidden layer": method.hidden_layer != bool(layers.hidden),
        "have another hidden layer (method.hidden_activation, method.hidden_norm)": bool(layers.hidden)
        and (other_norm or other_activation),
        f"have {'and '.join(unwritten)}, which is not 0": bool(unwritten),
        "keep the end of a text (method.kept_of_query)": method.kept_of_query != "start",
    }
    refuse(trained, type(model).__name__, beyond)
    if pools_any:
        config.classifier_pooling = pooling
    if activates_any:
        setattr(config, layers.activation, method.hidden_activation)
    config.num_labels = method.classes or 1
    # CrossEncoder would put a single score through a sigmoid
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    write_headed(model, trunk, {library_layer: head[layer] for layer, library_layer in names.items()}, folder)
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
