"""Checkpoints that are whole or not there: written aside, hashed, renamed; `latest` moved last; verified before use.

RUN/checkpoints/step-00001000/
    weights.safetensors   every parameter in fp32: what fine-tuning, evaluation and export read (no pickle)
    recipe.yaml           the recipe as it ran
    tokenizer.json        what its data was made with
    trunk.json            the encoder's shape
    state.json            step, every lane's position, and what must not change when the run goes on
    engine/               DeepSpeed's own files, one set a rank, for an exact continuation (pickles: only read verified)
    manifest.json         size and SHA-256 of all of the above
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file

from data_prep.errors import InputError
from data_prep.files import make_directory, os_errors_as_input_errors, sha256_of, sync_directory, whole_file
from trainer.lanes import Position

if TYPE_CHECKING:  # importing it imports DeepSpeed, which whoever only reads a checkpoint can do without
    from trainer.engine import Engine

WEIGHTS, STATE, MANIFEST, ENGINE = "weights.safetensors", "state.json", "manifest.json", "engine"
RECIPE, TOKENIZER, TRUNK = "recipe.yaml", "tokenizer.json", "trunk.json"


@dataclass(frozen=True)
class State:
    """Where a run stands after `step` optimizer steps, and what its order of data hangs on."""

    step: int
    positions: list[Position]
    world_size: int
    fixed: dict[str, Any]  # seed, lanes, batch, data: a run that goes on must agree in these


def save(run: Path, engine: Engine, state: State, about: Mapping[str, bytes], keep: int) -> Path:
    """Save a checkpoint with the small files `about` it; all ranks call.

    Older ones than the newest `keep` are removed once this one is whole. Raises InputError where the folder cannot be
    written (disk full): nothing partial is left and the checkpoints before this one stand.
    """
    final = folder(run, state.step)
    partial = final.with_name(f"{final.name}.partial")
    if engine.world.rank == 0:
        for stale in final.parent.glob("*.partial"):
            shutil.rmtree(stale)
        make_directory(partial)
    dist.barrier()
    try:
        with _write_errors_as_input_errors(partial):
            _write(partial, engine, state, about)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    dist.barrier()
    if engine.world.rank == 0:
        with os_errors_as_input_errors(final, "save a checkpoint"):
            shutil.rmtree(final, ignore_errors=True)  # a damaged one that the run passed over when it resumed
            os.replace(partial, final)
            sync_directory(final.parent)
        with whole_file(final.parent / "latest") as latest:
            latest.write(final.name.encode())
        for old in _all(run)[keep:]:
            shutil.rmtree(old)
    dist.barrier()
    return final


def newest(run: Path) -> Path | None:
    """The newest checkpoint of a run that passes verification; None where the run has none at all.

    Raises InputError where there are checkpoints and every one is damaged, naming what is wrong with the newest.
    """
    problems = []
    for checkpoint in _all(run):
        problem = verify(checkpoint)
        if problem is None:
            return checkpoint
        problems.append(problem)
    if problems:
        raise InputError(f"{problems[0]}; no older checkpoint is whole either: restore one, or start a new run folder")
    return None


def verify(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, in one line, by its manifest; None if nothing is."""
    try:
        files = json.loads((checkpoint / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{checkpoint}: its {MANIFEST} is missing or damaged"
    for name, expected in files.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{checkpoint}: {name} is missing"
        if file.stat().st_size != expected["bytes"] or sha256_of(file) != expected["sha256"]:
            return f"{checkpoint}: {name} is damaged (its size or SHA-256 is not the saved one)"
    return None


def read_state(checkpoint: Path) -> State:
    """The state of a verified checkpoint."""
    values = json.loads((checkpoint / STATE).read_text())
    return State(**{**values, "positions": [Position(*position) for position in values["positions"]]})


def resume(engine: Engine, checkpoint: Path) -> None:
    """Bring the engine to where a verified checkpoint left it; all ranks call."""
    engine.load(checkpoint, ENGINE)


def check_continues(checkpoint: Path, fixed: Mapping[str, Any], world_size: int) -> None:
    """Refuse to continue a run whose order of data, or number of ranks, would not be the saved one's."""
    state = read_state(checkpoint)
    for key, value in fixed.items():
        if state.fixed.get(key) != value:
            raise InputError(f"{checkpoint}: saved with {key}={state.fixed.get(key)}, the recipe now says {value}")
    if state.world_size != world_size:
        raise InputError(f"{checkpoint}: saved by {state.world_size} ranks, started with {world_size}: use as many")


def folder(run: Path, step: int) -> Path:
    """Where a run's checkpoint of a step is."""
    return run / "checkpoints" / f"step-{step:08d}"


def _all(run: Path) -> list[Path]:
    """Every finished checkpoint folder, newest first."""
    found = (run / "checkpoints").glob("step-*")
    return sorted((path for path in found if path.suffix != ".partial"), reverse=True)


@contextmanager
def _write_errors_as_input_errors(path: Path) -> Iterator[None]:
    """One line for what the disk refuses; torch and safetensors have errors of their own for it."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot save a checkpoint: {error}") from error
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
            raise
        free = shutil.disk_usage(path.parent).free
        raise InputError(f"{path}: cannot save a checkpoint: writing failed, {free:,} bytes are free") from error


def _write(partial: Path, engine: Engine, state: State, about: Mapping[str, bytes]) -> None:
    engine.save(partial, ENGINE)
    weights = engine.full_weights()
    dist.barrier()  # every rank's files are there before they are hashed
    if engine.world.rank:
        return
    save_file(weights, partial / WEIGHTS)
    for name, content in about.items():
        (partial / name).write_bytes(content)
    (partial / STATE).write_text(json.dumps(asdict(state), indent=1))
    files = {str(file.relative_to(partial)): _vouch(file) for file in _files(partial)}
    with whole_file(partial / MANIFEST) as manifest:
        manifest.write(json.dumps({"format": 1, "files": files}, indent=1).encode())


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _vouch(file: Path) -> dict[str, Any]:
    """A file's size and hash, once it is on disk."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
