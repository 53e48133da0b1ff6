"""Export a checkpoint as a folder that Hugging Face and sentence-transformers load."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save
from tokenizers.processors import BertProcessing
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from data_prep.common.errors import InputError
from data_prep.common.files import make_directory, whole_folder
from data_prep.tokenizers.tokenizer import Tokenizer
from models.config import MatchingConfig
from models.matching.cross_encoder import CrossEncoderConfig
from models.matching.siamese import SiameseConfig
from models.trunk import token_types
from trainer.checkpoints import model_card
from trainer.checkpoints.load import TrainedModel

DECODER = "decoder.safetensors"  # the heads that a pre-training run trained with the encoder
MARK = "deepsiam.json"  # marks a folder as an export, and records what of
SENTENCE_TRANSFORMERS = {  # class names that every version resolves
    "": "sentence_transformers.models.Transformer",
    "1_Pooling": "sentence_transformers.models.Pooling",
    "2_Normalize": "sentence_transformers.models.Normalize",
}


def export_encoder(trained: TrainedModel, out: Path, with_decoder: bool = False) -> None:
    """Write a trained encoder to the folder `out`, completely or not at all; replace an earlier export there.

    Args:
        trained: fine-tuned or only pre-trained.
        out: a new or empty folder, or an earlier export.
        with_decoder: also write the heads of a pre-training run: decoder.safetensors, decoder.json.

    Raises:
        InputError: `out` has other contents or cannot be written, or the run has no decoder.
    """
    method = trained.method
    if with_decoder and isinstance(method, MatchingConfig):
        raise InputError(f"{trained.checkpoint}: a fine-tuned run has no decoder: export its pre-training run")
    if isinstance(method, CrossEncoderConfig):
        _check_is_sequence_classifier(trained, method)
    elif isinstance(method, MatchingConfig):
        _check_is_sentence_transformer(trained)
    if with_decoder and not trained.model.heads:
        raise InputError(f"{trained.checkpoint}: {method.name} trains only the encoder: leave out --with-decoder")
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an earlier export: name a new folder, or remove it")
    make_directory(out.parent)
    trunk = trained.model.trunk
    with whole_folder(out) as folder:
        if isinstance(method, CrossEncoderConfig):
            _write_cross_encoder(trained, method, folder)
        else:
            _write_encoder(trunk, folder)
            _write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
        if isinstance(method, SiameseConfig):
            _write_sentence_transformer(method, trunk.config.hidden_size, folder)
        if with_decoder:
            _write_decoder(trained, folder)
        (folder / "README.md").write_text(model_card.text(trained, out, with_decoder), encoding="utf-8")
        source = {"kind": trained.kind, "checkpoint": str(trained.checkpoint), "step": trained.step}
        _write_json(folder / MARK, {**source, "tokenizer": trained.tokenizer.fingerprint})


def _check_is_sentence_transformer(trained: TrainedModel) -> None:
    """Raise InputError where a SentenceTransformer would not compute the embeddings of a fine-tuned model."""
    method = trained.method
    if not isinstance(method, SiameseConfig):
        raise InputError(f"{trained.checkpoint}: a {method.name} is no SentenceTransformer; use the run")
    beyond = {
        "pool several special tokens": method.special_tokens > 1,
        "pool the first states alone": method.pooling == "first_m",
        "have a projection with LayerNorm": method.projection is not None,
        "have an encoder of documents alone (method.towers=2)": method.towers == 2,
        "read documents in chunks": method.document_chunks > 1,
    }
    for what, is_asked in beyond.items():
        if is_asked:
            raise InputError(f"{trained.checkpoint}: a SentenceTransformer cannot {what}; use the run")


def _check_is_sequence_classifier(trained: TrainedModel, method: CrossEncoderConfig) -> None:
    """Raise InputError where BERT's sequence classifier would not compute the scores of a cross-encoder."""
    beyond = {
        f"have a trunk of {trained.model.trunk.config.model_type}": trained.model.trunk.config.model_type != "bert",
        "pool all states (method.pooling)": method.pooling != "cls",
        "do without a hidden layer (method.hidden_layer=false)": not method.hidden_layer,
        "keep the end of a text (method.kept_of_query)": method.kept_of_query != "start",
    }
    for what, is_asked in beyond.items():
        if is_asked:
            raise InputError(f"{trained.checkpoint}: BERT's sequence classifier cannot {what}; use the run")


def _write_cross_encoder(trained: TrainedModel, method: CrossEncoderConfig, folder: Path) -> None:
    """Write BertForSequenceClassification, whose pooler and classifier are the head, and a tokenizer of pairs."""
    trunk, head = trained.model.trunk, trained.model.heads
    config = copy.deepcopy(trunk.config)
    config.num_labels = method.classes or 1
    config.architectures = ["BertForSequenceClassification"]
    # CrossEncoder would put a single score through a sigmoid
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    state = {f"bert.{name}": tensor.detach() for name, tensor in trunk.state_dict().items()}
    names = {"head.0": "bert.pooler.dense", "head.3": "classifier"}
    for own, theirs in names.items():
        state |= {f"{theirs}.{part}": head[f"{own}.{part}"].detach() for part in ("weight", "bias")}
    _save_tensors(state, folder / "model.safetensors")
    config.save_pretrained(folder)
    (pair,) = method.input_lengths.values()
    types = ["token_type_ids"] if token_types(trunk) >= 2 else []
    _write_tokenizer(trained.tokenizer, pair, folder, types)


def _write_encoder(trunk: PreTrainedModel, folder: Path) -> None:
    """Write weights and configuration of the plain Hugging Face class, with exactly the keys that it expects."""
    stock = AutoModel.from_config(copy.deepcopy(trunk.config))
    state = {name: tensor.detach() for name, tensor in trunk.state_dict().items()}
    for name in stock.state_dict().keys() - state.keys():
        if not name.startswith("pooler."):
            raise InputError(f"{type(stock).__name__}: this encoder lacks {name} and cannot be exported")
        # AutoModel adds BERT's pooler, which is not trained here, and would initialise it at random at every load.
        # With the identity it is tanh of the first state: always the same, and useful to whoever takes it by mistake.
        like = stock.state_dict()[name]
        state[name] = torch.eye(len(like)) if like.ndim == 2 else torch.zeros_like(like)
    _save_tensors(state, folder / "model.safetensors")
    stock.config.architectures = [type(stock).__name__]
    stock.config.save_pretrained(folder)


def _write_tokenizer(tokenizer: Tokenizer, max_tokens: int, folder: Path, more: Sequence[str] = ()) -> None:
    """Write a tokenizer that encodes as in training, adds [CLS] and [SEP], and truncates to `max_tokens` if asked.

    `more` names what the model takes besides ids and mask.
    """
    backend = tokenizers.Tokenizer.from_file(str(tokenizer.path))
    backend.no_truncation()
    backend.no_padding()
    names = tokenizer.special_tokens
    backend.post_processor = BertProcessing((names["sep"], tokenizer.sep), (names["cls"], tokenizer.cls))
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "model_input_names": ["input_ids", "attention_mask", *more],
        "split_special_tokens": True,  # "[MASK]" written in a text is text, as in training
        "clean_up_tokenization_spaces": False,
    }
    special = {f"{name}_token": token for name, token in names.items()}
    _write_json(folder / "tokenizer_config.json", settings | special)


def _write_sentence_transformer(method: SiameseConfig, hidden_size: int, folder: Path) -> None:
    """Write what makes a Hugging Face folder a SentenceTransformer: its modules and its trained similarity."""
    paths = ["", "1_Pooling"] + (["2_Normalize"] if method.similarity == "cosine" else [])
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": SENTENCE_TRANSFORMERS[path]} for i, path in enumerate(paths)
    ]
    _write_json(folder / "modules.json", modules)
    for path in paths[1:]:
        (folder / path).mkdir()
    pooling = {
        "word_embedding_dimension": hidden_size,
        "pooling_mode_cls_token": method.pooling == "cls",
        "pooling_mode_mean_tokens": method.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_lasttoken": method.pooling == "last",
    }
    _write_json(folder / "1_Pooling" / "config.json", pooling)
    transformer = {"max_seq_length": method.max_document_tokens, "do_lower_case": False}  # the tokenizer lower-cases
    _write_json(folder / "sentence_bert_config.json", transformer)
    similarity: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": method.similarity}
    _write_json(folder / "config_sentence_transformers.json", similarity)


def _write_decoder(trained: TrainedModel, folder: Path) -> None:
    """Write all parameters but the encoder's, and how to rebuild the model from both."""
    _save_tensors({name: head.detach() for name, head in trained.model.heads.items()}, folder / DECODER)
    config = type(trained.method)
    rebuild = [
        f"from {config.__module__} import {config.__name__}",
        "trunk = transformers.AutoModel.from_pretrained(FOLDER)",
        f"model = {config.__name__}(**method).model(trunk)",
        "model.load_state_dict(safetensors.torch.load_file(FOLDER + '/decoder.safetensors'), strict=False)",
    ]
    instructions = {
        "class": f"{config.__module__}.{config.__name__}",
        "method": trained.method.model_dump(mode="json"),
        "rebuild": rebuild,
    }
    _write_json(folder / "decoder.json", instructions)


def _save_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    # save_file would create a file that only its owner may read
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in state.items()}, {"format": "pt"}))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
