"""Export a checkpoint as a folder that other libraries load."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, whole_folder
from deepsiam.models.adapters import Adapters
from deepsiam.models.build_trunk import plain_encoder
from deepsiam.trainer.interop import (
    adapters,
    pretrained,
)
from deepsiam.trainer.interop.files import as_code, write_json
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import WRITERS
from deepsiam.trainer.interop.same_reading import require_same_reading
from deepsiam.trainer.interop.settings import DENSE, MARK, TOKENIZER
from deepsiam.trainer.ranking.export import model_card
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.base import read_base
from deepsiam.trainer.training.checkpoints.load import TrainedModel


def export_encoder(
    trained: TrainedModel,
    out: Path,
    with_decoder: bool = False,
    form: Literal["stock", "adapters"] = "stock",
    repository: str | None = None,
) -> None:
    """Write a trained encoder to the folder `out`, completely or not at all; replace an earlier export there.

    Args:
        trained: fine-tuned or only pre-trained.
        out: a new or empty folder, or an earlier export.
        with_decoder: also write the heads of a pre-training run: decoder.safetensors, decoder.json.
        form: the files of Hugging Face's libraries and PyLate; or a run's adapters alone.
        repository: the name OWNER/NAME by which its README.md loads it; by default `out`.

    Raises:
        InputError: `out` has other contents or cannot be written, the format cannot hold the model, transformers would
            read texts otherwise, or the run has no decoder.
    """
    if with_decoder:
        pretrained.check_decoder(trained)
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an earlier export: name a new folder, or remove it")
    make_directory(out.parent)
    with whole_folder(out) as folder:
        card = _write(trained, folder, Path(repository or out), form)
        if (folder / TOKENIZER).is_file():
            _check_reading(trained, folder)
        if with_decoder:
            pretrained.write_decoder(trained, folder)
            card += pretrained.DECODER_CARD
        (folder / "README.md").write_text(
            model_card.complete(card, trained, Path(repository or out).resolve().name), encoding="utf-8"
        )
        source: dict[str, Any] = {"kind": trained.kind, "checkpoint": str(trained.checkpoint), "step": trained.step}
        if trained.method.folder_kind == DENSE:  # what a SentenceTransformer has no key for
            source |= trained.method.model_dump(include={"max_query_tokens", "dimensions"}, mode="json")
        tokens = {"tokenizer": trained.tokenizer.fingerprint, "added_tokens": trained.method.added_tokens}
        write_json(folder / MARK, source | tokens)


def _check_reading(trained: TrainedModel, folder: Path) -> None:
    """Raise InputError where transformers reads texts otherwise: by type alone, it chooses the tokenizer of a few."""
    try:
        require_same_reading(Folder(folder))
    except InputError:
        kind = type(trained.model.trunk.config).model_type
        raise InputError(
            f"{trained.checkpoint}: transformers reads texts otherwise than this run's tokenizer in a folder of "
            f"model_type {kind!r}: use the run"
        ) from None


def _write(trained: TrainedModel, folder: Path, loaded_from: Path, form: str) -> str:
    """Write model and tokenizer in the format of their method; return the README.md."""
    method = trained.method
    facts = {  # for every README.md: what the model is, and which run and step it comes from
        "name": loaded_from.resolve().name,
        "out": loaded_from,
        "kind": trained.kind,
        "run": as_code(trained.recipe.run),
        "step": f"{trained.step:,}",
        "width": trained.model.trunk.config.hidden_size,
        "tokens": trained.text_tokens,
        "loader": plain_encoder(type(trained.model.trunk.config))[0].__name__,
    }
    if form == "adapters":
        base, train = read_base(trained.checkpoint), trained.recipe.optimizer.train
        if base is None or not isinstance(train, Adapters):
            raise InputError(f"{trained.checkpoint}: was trained without adapters: leave out --format adapters")
        weights = trained.checkpoint / checkpoint.WEIGHTS
        bidirectional = trained.recipe.bidirectional
        return adapters.write(trained, train.lora, weights, base.folder, folder, facts, bidirectional=bidirectional)
    if method.folder_kind not in WRITERS:
        raise InputError(f"{trained.checkpoint}: no library loads a {method.name}; use the run")
    return WRITERS[method.folder_kind](trained, method, folder, facts)
