"""Load any model that ranks: a fine-tuned one, or one that ranks without fine-tuning, such as a published folder."""

from __future__ import annotations

from pathlib import Path

from data_prep.common.errors import InputError
from data_prep.tokenizers import tokenizer as tokenizers
from models.config import PretrainingConfig
from models.matching.siamese import SiameseConfig
from models.trunk import max_positions
from trainer.checkpoints.init_from import CONFIG, load_encoder
from trainer.checkpoints.load import LoadedModel, TrainedModel, load_trained
from trainer.checkpoints.sentence_transformer import is_sentence_transformer, longest_text, read_modules
from trainer.recipe.build import build_model


def load_any(path: Path) -> LoadedModel:
    """Load a model to rank with, from a run, a checkpoint or a sentence-transformers folder.

    A pre-training run whose method ranks without fine-tuning becomes a Siamese network of its embeddings.

    Raises:
        InputError: the path is none of these, or it is damaged.
    """
    if is_sentence_transformer(path):
        return load_published(path)
    if (path / CONFIG).is_file():
        raise InputError(f"{path}: an encoder without a pooling and a similarity: fine-tune it first, with init_from")
    trained = load_trained(path)
    if isinstance(trained.method, PretrainingConfig) and trained.method.ranks_untuned:
        return _untuned(trained, 1 + trained.method.added_tokens)
    return trained


def _untuned(trained: TrainedModel, special_tokens: int) -> LoadedModel:
    tokens = trained.text_tokens
    method = SiameseConfig(
        name="siamese", max_query_tokens=tokens, max_document_tokens=tokens, special_tokens=special_tokens
    )
    return LoadedModel(build_model(method, trained.model.trunk).eval(), method, trained.tokenizer, trained.checkpoint)


def load_published(path: Path) -> LoadedModel:
    """Load a folder's encoder into a Siamese network with the folder's pooling, similarity and text length.

    Raises:
        InputError: a file is damaged, or the model does more than pool and normalise.
    """
    folder, keys = read_modules(path)
    tokenizer = tokenizers.load(folder / "tokenizer.json")
    trunk = load_encoder(path, tokenizer).trunk
    tokens = min(longest_text(folder) or max_positions(trunk), max_positions(trunk))
    method = SiameseConfig(name="siamese", max_query_tokens=tokens, max_document_tokens=tokens, **keys)
    return LoadedModel(build_model(method, trunk).eval(), method, tokenizer, path)
