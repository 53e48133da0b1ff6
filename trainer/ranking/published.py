"""Load any model that ranks: a fine-tuned one, or one that ranks without fine-tuning, such as a published folder."""

from __future__ import annotations

from pathlib import Path

from deepsiam.data_prep.common.hub import local_model
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import kind_of, load
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.sentence_transformer import siamese
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.engine.world import warn


def load_any(path: Path) -> LoadedModel:
    """Load a model to rank with, from a run, a checkpoint, a published folder, or an address of the hub.

    A pre-training run whose method ranks without fine-tuning becomes a Siamese network of its embeddings.

    Raises:
        InputError: the path is none of these, or it is damaged.
    """
    path = local_model(path)
    folder = Folder(path)
    if kind := kind_of(folder):
        trained = load(folder, kind)
        for remark in trained.remarks:
            warn(remark)
        return trained
    trained = load_trained(path)
    if trained.method.ranks_untuned:
        keys = {"special_tokens": 1 + trained.method.added_tokens}
        return siamese(trained.model.trunk, trained.tokenizer, trained.checkpoint, (trained.text_tokens,) * 2, keys)
    return trained
