"""Write run folders like those of a training, without training: a complete checkpoint with random weights."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from data_prep.tokenizers import tokenizer as tokenizers
from models.registry import MATCHING
from tests import toy
from trainer.training.checkpoints import checkpoint
from trainer.training.data.cursor import Cursor
from trainer.training.data.lanes import START
from trainer.training.recipe.build import build_model, new_trunk, resize_embeddings, settings_of
from trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from trainer.training.recipe.yaml_file import build

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
    folder = checkpoint.folder(run, STEP)
    folder.mkdir(parents=True)
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, folder / checkpoint.WEIGHTS)
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(values))
    (folder / checkpoint.TOKENIZER).write_bytes(tokenizer_json.read_bytes())
    (folder / checkpoint.TRUNK).write_text(json.dumps(settings_of(model.trunk.config)))
    cursor = Cursor([[START] * 4], micro_sizes={0: 4})  # of one source, as in `toy.seed_recipe`
    state = {"step": STEP, "world_size": 1, "fixed": {}, "cursor": cursor.to_json()}
    (folder / checkpoint.STATE).write_text(json.dumps(state))
    checkpoint.write_manifest(folder)
    return run
