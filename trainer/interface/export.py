"""Export a trained model as a folder that other libraries load; `trainer.export` calls this."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from deepsiam.data_prep.common import hub
from deepsiam.trainer.interop.poly_encoder import BECOMES, KIND
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.engine.world import say


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: Literal["stock", "adapters"] = "stock",
    with_decoder: bool = False,
    push: str | None = None,
    private: bool = False,
) -> Path:
    """Write a trained model to a folder, completely or not at all; an earlier export there is replaced.

    Args:
        run: a run (its newest sound checkpoint) or a checkpoint.
        out: a new or empty folder, or an earlier export.
        format: `stock`: as sentence-transformers, PyLate and transformers load it; `adapters`: those of the run alone,
            as peft loads them.
        with_decoder: also write the heads of a pre-training run.
        push: also upload the folder to this repository of the hub, OWNER/NAME.
        private: make the repository a private one, if it is new.

    Returns:
        The folder.

    Raises:
        InputError: there is no run, `out` has other contents or cannot be written, no such format holds the
            model, or the hub refuses it.
    """
    repository = hub.require_repository(push) if push else None
    trained = load_trained(Path(run))
    export_encoder(trained, Path(out), with_decoder, format, repository)
    is_split = format == "stock" and trained.method.folder_kind == KIND
    say(f"exported {trained.checkpoint} to {out}{f' as {BECOMES}' if is_split else ''}")
    if repository:
        say(f"uploaded to {hub.push(Path(out), repository, private=private)}")
    return Path(out)
