"""Load any model that ranks: a fine-tuned one, or one that ranks without fine-tuning, such as a published folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.trunk import max_positions
from deepsiam.trainer.interop import colbert, cross_encoder
from deepsiam.trainer.interop.causal_lm import (
    is_logit_score,
    read_label_head,
    refuse_other_modules,
    remark_on_labels,
    require_known_head,
)
from deepsiam.trainer.interop.folder import check_settings, kind_of
from deepsiam.trainer.interop.hugging_face import TOKENIZER
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.modules import encoder_of
from deepsiam.trainer.interop.prompts import prompts_of
from deepsiam.trainer.interop.sentence_transformer import dimensions_of, longest_texts, read_modules
from deepsiam.trainer.interop.settings import CAUSAL, COLBERT, DENSE, PAIRS, SETTINGS, SPARSE, Kind
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.engine.world import warn
from deepsiam.trainer.training.recipe.build import build_model, check_length, resize_embeddings

MOST_PROMPT_TOKENS = 4096  # of a published model's prompts, unless a recipe says otherwise


def load_any(path: Path) -> LoadedModel:
    """Load a model to rank with, from a run, a checkpoint, a sentence-transformers folder or a cross-encoder's.

    A pre-training run whose method ranks without fine-tuning becomes a Siamese network of its embeddings.

    Raises:
        InputError: the path is none of these, or it is damaged.
    """
    if kind := kind_of(path):
        if kind not in LOADERS:
            what = "a SparseEncoder" if kind == SPARSE else "an encoder without a pooling and a similarity"
            raise InputError(f"{path}: {what}: fine-tune it first, with init_from")
        without = check_settings(path, kind, to_rank=True)
        loaded = LOADERS[kind](path)
        if kind == CAUSAL and is_logit_score(path):
            warn(
                f"{path}: is read as a plain language model, with the prompt and the labels of a recipe, such as "
                f"recipes/yes_no.yaml, in place of {', '.join(['its chat template', *without])}"
            )
        return loaded
    trained = load_trained(path)
    if isinstance(trained.method, PretrainingConfig) and trained.method.ranks_untuned:
        keys = {"special_tokens": 1 + trained.method.added_tokens}
        return _siamese(trained.model.trunk, trained.tokenizer, trained.checkpoint, (trained.text_tokens,) * 2, keys)
    return trained


def load_published(path: Path) -> LoadedModel:
    """Load a folder's encoder into a Siamese network with the folder's pooling, similarity, prompts and text length.

    Raises:
        InputError: a file is damaged, or the model does more than pool and normalise, or has another setting that is
            not supported (`published.table.TABLE`).
    """
    folder, keys = read_modules(path)
    tokenizer = tokenizers.load(folder / "tokenizer.json")
    trunk = load_encoder(path, tokenizer).trunk
    keys |= dimensions_of(path, trunk.config.hidden_size) | prompts_of(path, keys["pooling"], to_rank=True)
    return _siamese(trunk, tokenizer, path, longest_texts(folder, max_positions(trunk)), keys)


def load_cross_encoder(path: Path) -> LoadedModel:
    """Load a folder's cross-encoder: a score, or the logits of classes, as sentence-transformers predicts them.

    Raises:
        InputError: a file is damaged, or the model is of another kind than those that can be computed exactly.
    """
    about = cross_encoder.read(path)
    tokenizer = tokenizers.load(about.folder / TOKENIZER)
    encoder = load_encoder(path, tokenizer)
    tokens = min(about.keys["max_pair_tokens"] or max_positions(encoder.trunk), max_positions(encoder.trunk))
    lengths = dict.fromkeys(("max_query_tokens", "max_document_tokens", "max_pair_tokens"), tokens)
    of_labels = {"loss": "classes", "classes": about.labels} if about.labels > 1 else {"loss": "binary"}
    method = CrossEncoderConfig(name="cross_encoder", **{**about.keys, **lengths, **of_labels})
    model = build_model(method, encoder.trunk)
    encoder.fill_heads(model, method)
    model.activation = about.activation
    return LoadedModel(model.eval(), method, tokenizer, path, classes=about.classes)


def load_colbert(path: Path) -> LoadedModel:
    """Load a folder's ColBERT, with its markers, its [MASK]s after queries and its skip list.

    Raises:
        InputError: a file is damaged, or the model does more than ours, or no token marks queries and documents.
    """
    folder = encoder_of(path)
    tokenizer = tokenizers.load(folder / TOKENIZER)
    encoder = load_encoder(path, tokenizer)
    if not encoder.marker_rows:
        raise InputError(f"{path / SETTINGS}: no token marks queries and documents: fine-tune it first, with init_from")
    lengths = colbert.read_lengths(path, max_positions(encoder.trunk))
    keys = colbert.read_habits(path, tokenizer) | colbert.read_prompts(path, tokenizer.vocabulary())
    method = ColbertConfig(name="colbert", **{**lengths, **keys})
    with as_input_error(str(path / SETTINGS)):  # a prompt may leave no room for a text
        method.check_frame(tokenizer)
    check_length(f"{path}: the length of queries", method.max_query_tokens, encoder.trunk)
    resize_embeddings(method, encoder.trunk, tokenizer, encoder.rows_for(method))
    model = build_model(method, encoder.trunk)
    encoder.fill_heads(model, method)
    return LoadedModel(model.eval(), method, tokenizer, path)


def load_causal_lm(path: Path) -> LoadedModel:
    """Load a folder's causal language model as a ranker by labels, of lists with the default template.

    Raises:
        InputError: a file is damaged, the model has no head that is supported, or its tokenizer lacks the labels.
    """
    folder = encoder_of(path)
    if is_logit_score(path):
        refuse_other_modules(path)
    tokenizer = tokenizers.load(folder / TOKENIZER)
    trunk = load_encoder(path, tokenizer).trunk
    require_known_head(folder, trunk)
    most = min(MOST_PROMPT_TOKENS, max_positions(trunk))
    keys = LabelRankerConfig(name="label_ranker", loss="rank_net", max_prompt_tokens=most)
    return by_labels(path, trunk, tokenizer, keys)


def by_labels(path: Path, trunk: PreTrainedModel, tokenizer: Tokenizer, method: LabelRankerConfig) -> LoadedModel:
    """Make a ranker by labels of a folder's causal language model, whose trunk is loaded.

    Raises:
        InputError: the model has no head, or no positions for the longest prompt, or its tokenizer lacks the labels.
    """
    with as_input_error(f"{path}: method"):
        tokens = method.head_tokens(tokenizer)
        model = method.model(trunk)
    check_length(f"{path}: method.max_prompt_tokens", method.max_prompt_tokens, trunk)
    head = read_label_head(encoder_of(path), trunk, tokens)
    if not head:
        raise InputError(f"{path}: has no head of a causal language model, from which the logits of labels are")
    model.labels.load_state_dict(head)
    remark = remark_on_labels(path, tokens, tokenizer) if is_logit_score(path) else ""
    if remark and not method.is_list:
        warn(remark)
    return LoadedModel(model.eval(), method, tokenizer, path)


LOADERS: dict[Kind, Callable[[Path], LoadedModel]] = {
    DENSE: load_published,
    PAIRS: load_cross_encoder,
    COLBERT: load_colbert,
    CAUSAL: load_causal_lm,
}


def _siamese(
    trunk: PreTrainedModel, tokenizer: Tokenizer, path: Path, lengths: tuple[int, int], keys: Mapping[str, Any]
) -> LoadedModel:
    """Put an encoder into a Siamese network that reads queries and documents up to their lengths in tokens."""
    method = SiameseConfig(name="siamese", max_query_tokens=lengths[0], max_document_tokens=lengths[1], **keys)
    with as_input_error(str(path / SETTINGS)):  # a prompt may leave no room for a text
        method.check_frame(tokenizer)
    return LoadedModel(build_model(method, trunk).eval(), method, tokenizer, path)
