"""`init_from`: load the encoder of a run, an export, a Hugging Face folder or a sentence-transformers folder."""

from pathlib import Path

from deepsiam.data_prep.common.errors import as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.models.trunk import TrunkModel, make_bidirectional
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import check_settings, kind_of, open_encoder
from deepsiam.trainer.interop.start import PretrainedEncoder, check_ids, rows_after
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from deepsiam.trainer.training.checkpoints.start_keys import start_notes
from deepsiam.trainer.training.engine.world import say
from deepsiam.trainer.training.recipe.schema import Recipe


def load_start(recipe: Recipe, start: Folder, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Load the encoder that a recipe starts from, a decoder made bidirectional if the recipe asks for it."""
    encoder = load_encoder(start, tokenizer)
    if recipe.bidirectional:
        with as_input_error("bidirectional"):
            make_bidirectional(encoder.trunk)
    return encoder


def load_encoder(folder: Folder, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Load the encoder of a run, a checkpoint, an export, a Hugging Face folder or a sentence-transformers folder.

    Only configuration, safetensors and the tokenizer are read, and no code from the folder is run. Raise InputError
    for a damaged or another folder, an unsupported setting (`interop.table.TABLE`), or other ids than `tokenizer`'s.
    """
    kind = kind_of(folder)
    if kind is None:
        return _encoder_of_run(load_trained(folder.path), folder.path, tokenizer)
    check_settings(folder, kind, to_rank=False)
    return open_encoder(folder, tokenizer, kind)


def copy_heads(encoder: PretrainedEncoder, model: TrunkModel, method: MethodConfig) -> str:
    """Copy an encoder's heads into `model`, and say what training by `method` leaves out of its folder."""
    say(*start_notes(encoder.folder, method))
    return encoder.fill_heads(model, method)


def _encoder_of_run(trained: TrainedModel, path: Path, tokenizer: Tokenizer) -> PretrainedEncoder:
    check_ids(path, trained.tokenizer, tokenizer)
    heads = {name: head.detach() for name, head in trained.model.heads.items()}
    rows = rows_after(trained.tokenizer, trained.method.added_tokens + trained.method.markers)
    special, markers = rows[: trained.method.added_tokens], rows[trained.method.added_tokens :]
    return PretrainedEncoder(
        Folder(trained.checkpoint), trained.model.trunk.train(), heads, len(special), special, markers
    )
