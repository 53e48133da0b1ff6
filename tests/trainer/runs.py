"""Run folders as training leaves them, made without training: random weights in a whole checkpoint."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from data_prep import tokenizer as tokenizers
from data_prep.files import sha256_of
from tests import toy
from trainer import checkpoint
from trainer.cursor import Cursor
from trainer.method_keys import Siamese
from trainer.methods import make_room, model_of, new_trunk, settings_of
from trainer.recipe import FinetuneRecipe, PretrainRecipe, build

STEP = 7


def saved_with(run: Path, fixed: dict[str, Any]) -> Path:
    """The run, with a checkpoint that says what its numbers hang on."""
    folder = checkpoint.folder(run, STEP)
    state, manifest = (json.loads((folder / name).read_text()) for name in (checkpoint.STATE, checkpoint.MANIFEST))
    (folder / checkpoint.STATE).write_text(json.dumps({**state, "fixed": fixed}))
    size, sha256 = (folder / checkpoint.STATE).stat().st_size, sha256_of(folder / checkpoint.STATE)
    manifest["files"][checkpoint.STATE] = {"bytes": size, "sha256": sha256}
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    return run


def write_run(
    run: Path, tokenizer_json: Path, *, seed: int = 0, trunk: dict[str, Any] | None = None, **method: Any
) -> Path:
    """A run of the method given, with weights drawn large enough that no two texts are much alike."""
    data = {"collection": "c"} if method["name"] == "siamese" else {"shards": "s"}
    start = {"init_from": "p"} if method["name"] == "siamese" else {"trunk": toy.TRUNK}
    values = {
        **start,
        "run": str(run),
        "steps": STEP,
        "data": data,
        "batch": {"size": 8, "micro": 4},
        "optimizer": {"lr": 1e-3},
        "method": method,
    }
    recipe = build(FinetuneRecipe if method["name"] == "siamese" else PretrainRecipe, values, "test")
    torch.manual_seed(seed)
    tokenizer = tokenizers.load(tokenizer_json)
    encoder = new_trunk(trunk or toy.TRUNK, tokenizer)
    if not isinstance(recipe.method, Siamese):
        make_room(recipe.method, encoder, tokenizer)
    model = model_of(recipe.method, encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder = checkpoint.folder(run, STEP)
    folder.mkdir(parents=True)
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, folder / checkpoint.WEIGHTS)
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(values))
    (folder / checkpoint.TOKENIZER).write_bytes(tokenizer_json.read_bytes())
    (folder / checkpoint.TRUNK).write_text(json.dumps(settings_of(model.trunk.config)))
    state = {"step": STEP, "world_size": 1, "fixed": {}, "cursor": Cursor([]).to_json()}
    (folder / checkpoint.STATE).write_text(json.dumps(state))
    files = {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in folder.iterdir()}
    (folder / checkpoint.MANIFEST).write_text(json.dumps({"format": checkpoint.FORMAT, "files": files}))
    return run
