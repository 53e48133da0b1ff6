"""The control of a pre-trained start: only its token embeddings; all other weights of the trunk are re-initialised.

A random Transformer over trained embeddings is a bag of words with trained words. Where a start is better than this
row, its layers have learned something.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from deepsiam.data_prep.common.files import whole_folder
from deepsiam.models.build_trunk import build_trunk, settings_of
from deepsiam.models.trunk import token_embedding
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained


def embeddings_only(run: Path, out: Path, seed: int) -> Path:
    """Write the checkpoint folder `out`, from which fine-tuning starts as from `run`; return it.

    The other weights are those that `random_weights` draws in a fine-tuning with the same seed, so the two starts
    differ only in the token embeddings.

    Args:
        run: a run folder (its newest checkpoint), or a checkpoint folder.
        out: replaced if it exists.
        seed: the seed of the re-initialised weights.
    """
    trained = load_trained(run)
    trunk = trained.model.trunk
    torch.manual_seed(seed)
    drawn = build_trunk(settings_of(trunk.config))
    with torch.no_grad():
        token_embedding(drawn).copy_(token_embedding(trunk))
    trained.model.trunk = drawn
    with whole_folder(out) as folder:
        for name in (checkpoint.RECIPE, checkpoint.TOKENIZER, checkpoint.TRUNK, checkpoint.STATE):
            shutil.copyfile(trained.checkpoint / name, folder / name)
        weights = {name: parameter.detach() for name, parameter in trained.model.named_parameters()}
        save_file(weights, folder / checkpoint.WEIGHTS)
        checkpoint.write_manifest(folder)
    return out
