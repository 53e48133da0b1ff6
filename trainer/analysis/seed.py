"""SEED's Figure 4: how similar the decoder's states and [CLS] are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, new_figure, save
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED
from deepsiam.models.layers.pooling import bottleneck
from deepsiam.models.pretraining.seed import Seed
from deepsiam.models.trunk import token_embedding
from deepsiam.trainer.analysis.held_out import held_out_arrays
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained

EXAMPLES = 256  # blocks that the mean is taken over


def print_cosines(runs: Sequence[tuple[str, Path]], shards: Path, out: Path) -> None:
    """Draw the cosines of named runs; print where, and each run's means."""
    require("evaluate", "matplotlib")
    rows = {name: cosines(load_trained(run), shards) for name, run in runs}
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, means) in zip(COLORS * len(rows), rows.items(), strict=False):
        panel.plot(np.arange(1, len(means) + 1), means, color=color, linewidth=2.0, label=name)
    panel.legend(frameon=False)
    panel.set_xlabel("position")
    panel.set_ylabel("cosine of the decoder's state and [CLS]")
    print(save(figure, out))
    for name, means in rows.items():
        quarters = ", ".join(f"{part.mean():.3f}" for part in np.array_split(means, 4))
        print(f"{name}: {quarters} (means over the four quarters of the positions)")


def cosines(trained: TrainedModel, shards: Path) -> np.ndarray:
    """Return the mean cosine between each position's last decoder state and h_0 over held-out blocks: fp64 [positions].

    Raises:
        InputError: the run is not a SEED run, or its decoder does not read [CLS].
    """
    model = trained.model
    if not isinstance(model, Seed) or not model.cls:
        raise InputError(f"{trained.checkpoint}: not a SEED run whose decoder reads [CLS]; name one")
    sums, counts = np.zeros(0), np.zeros(0)
    for arrays in held_out_arrays(trained, shards, EXAMPLES, 16):
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        with torch.inference_mode():
            mask = tensors["attention_mask"]
            cls = bottleneck(encode(model.trunk, tensors["input_ids"], mask), mask, model.pooling)  # [B, H]
            states = model.decoder(cls, tensors["original_ids"], token_embedding(model.trunk))  # [B, T, H]
            similarity = F.cosine_similarity(states, cls[:, None], dim=-1).double().numpy()  # [B, T]
        has_target = np.zeros(similarity.shape, dtype=bool)  # a row's last state predicts nothing and is untrained
        has_target.reshape(-1)[arrays["decoder_positions"][arrays["decoder_targets"] != IGNORED]] = True
        has_target, similarity = has_target[:, 1:], similarity[:, 1:]  # slot 0 is [CLS] itself
        growth = max(0, similarity.shape[1] - len(sums))
        sums, counts = np.pad(sums, (0, growth)), np.pad(counts, (0, growth))
        sums[: similarity.shape[1]] += (similarity * has_target).sum(0)
        counts[: similarity.shape[1]] += has_target.sum(0)
    return sums[counts > 0] / counts[counts > 0]  # the last position never has a target
