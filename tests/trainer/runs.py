"""Write run folders like those of a training, without training: a complete checkpoint with random weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import settings_of
from deepsiam.models.config import resize_embeddings
from deepsiam.models.registry import MATCHING
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START
from deepsiam.trainer.training.recipe.build import build_model, new_trunk
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.job import Job
from tests import toy

STEP = 7


def set_invariants(run: Path, invariants: dict[str, Any]) -> Path:
    """Write the resume invariants into the run's checkpoint; return the run."""
    folder = checkpoint.folder(run, STEP)
    state = json.loads((folder / checkpoint.STATE).read_text())
    (folder / checkpoint.STATE).write_text(json.dumps({**state, "fixed": invariants}))
    vouch(folder)
    return run


def vouch(folder: Path) -> None:
    """Let the manifest of a checkpoint vouch for its files as they are now."""
    (folder / checkpoint.MANIFEST).unlink()
    checkpoint.write_manifest(folder)


def write_run(
    run: Path,
    tokenizer_json: Path,
    *,
    seed: int = 0,
    trunk: dict[str, Any] | None = None,
    noise: float = 0.1,
    **method: Any,
) -> Path:
    """Write a run of a method; `noise` in its weights gives different texts different embeddings."""
    matching = method["name"] in MATCHING
    data = {"collection": "c"} if matching else {"shards": "s"}
    encoder_keys = {"init_from": "p"} if matching else {"trunk": toy.TRUNK}
    values = {
        **encoder_keys,
        "run": str(run),
        "steps": STEP,
        "data": data,
        "batch": {"size": 8, "micro": 4},
        "optimizer": {"lr": 1e-3},
        "method": method,
    }
    recipe = build(FinetuneRecipe if matching else PretrainRecipe, values, "test")
    torch.manual_seed(seed)
    tokenizer = tokenizers.load(tokenizer_json)
    encoder = new_trunk(trunk or toy.TRUNK, tokenizer)
    resize_embeddings(recipe.method, encoder, tokenizer)
    model = build_model(recipe.method, encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * noise)
    files = {
        checkpoint.RECIPE: yaml.safe_dump(values).encode(),
        checkpoint.TOKENIZER: tokenizer_json.read_bytes(),
        checkpoint.TRUNK: json.dumps(settings_of(model.trunk.config)).encode(),
    }
    return _write(run, model, files)


def write_adapters(run: Path, collection: Path, start: Path, lora: dict[str, Any], **changes: Any) -> Path:
    """Write a run of `toy.finetune_values` with random adapters beside the layers of the encoder at `start`."""
    optimizer = {"lr": 1e-3, "train": {"lora": lora}}
    values = toy.finetune_values(run, collection, init_from=str(start), optimizer=optimizer, **changes)
    job = finetuning.build(build(FinetuneRecipe, values, "test"))
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in job.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return save_run(run, job)


def save_run(run: Path, job: Job) -> Path:
    """Write a run of a job's model as it is."""
    return _write(run, job.model, job.sidecar_files)


def _write(run: Path, model: TrunkModel, files: Mapping[str, bytes]) -> Path:
    folder = checkpoint.folder(run, STEP)
    folder.mkdir(parents=True)
    saved = {name: p.detach().clone() for name, p in model.named_parameters() if name not in model.from_base}
    save_file(saved, folder / checkpoint.WEIGHTS)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    cursor = Cursor([[START] * 4], micro_sizes={0: 4})  # of one source, as in `toy.seed_recipe`
    (folder / checkpoint.STATE).write_bytes(checkpoint.State(STEP, cursor, 1, {}).to_json())
    checkpoint.write_manifest(folder)
    return run
