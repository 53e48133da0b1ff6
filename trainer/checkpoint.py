"""Checkpoints that are whole or not there: written aside, hashed, renamed; verified before use.

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
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from data_prep.errors import InputError
from data_prep.files import make_directory, sha256_of, sync_directory, whole_file
from trainer.cursor import Cursor
from trainer.faults import SharedError
from trainer.recipe import Checkpoint

if TYPE_CHECKING:  # importing it imports DeepSpeed, which whoever only reads a checkpoint can do without
    from trainer.engine import Engine

WEIGHTS, STATE, MANIFEST, ENGINE = "weights.safetensors", "state.json", "manifest.json", "engine"
FORMAT = 2
RECIPE, TOKENIZER, TRUNK = "recipe.yaml", "tokenizer.json", "trunk.json"


class SaveError(SharedError):
    """A checkpoint could not be written; nothing partial is left and those before it stand."""


@dataclass(frozen=True)
class State:
    """Where a run stands after `step` optimizer steps, and what its numbers hang on."""

    step: int
    cursor: Cursor
    world_size: int
    fixed: dict[str, Any]  # seed, method, start, data, batch: a run that goes on must agree in these


def save(run: Path, engine: Engine, state: State, about: Mapping[str, bytes], policy: Checkpoint) -> Path:
    """Save a checkpoint with the small files `about` it; all ranks call.

    Older ones are removed, as the policy says, once this one is whole. Raises SaveError, on every rank, where one of
    them cannot write (disk full).
    """
    final = folder(run, state.step)
    partial = final.with_name(f"{final.name}.partial")
    on_rank_0 = engine.world.rank == 0
    try:
        _together(engine, "save", partial, lambda: _prepare(partial) if on_rank_0 else None)
        weights = engine.full_weights()
        _together(engine, "save", partial, lambda: engine.save(partial, ENGINE))
        _together(
            engine, "save", partial, lambda: _finish(partial, final, weights, state, about) if on_rank_0 else None
        )
    except SaveError:
        if on_rank_0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    if on_rank_0:
        for old in newest_first(run)[policy.keep :]:
            if not policy.keep_every or step_of(old) % policy.keep_every:
                shutil.rmtree(old, ignore_errors=True)  # what stays of it is tried again at the next save
    return final


def newest(run: Path) -> Path | None:
    """The newest checkpoint of a run that passes verification; None where the run has none at all.

    Raises InputError where there are checkpoints and every one is damaged, naming what is wrong with the newest.
    """
    problems: list[str] = []
    for checkpoint in newest_first(run):
        problem = verify(checkpoint)
        if problem is None:
            if problems:
                print(f"{problems[0]}: passing over it to {checkpoint.name}", file=sys.stderr, flush=True)
            return checkpoint
        problems.append(problem)
    if problems:
        raise InputError(f"{problems[0]}; no older checkpoint is whole either: restore one, or start a new run folder")
    return None


def verify(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, in one line, by its manifest; None if nothing is."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            return f"{checkpoint}: its format is version {manifest['format']}, this code reads {FORMAT}"
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{checkpoint}: its {MANIFEST} is missing or damaged"
    for name, (size, sha256) in files.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{checkpoint}: {name} is missing"
        if file.stat().st_size != size or sha256_of(file) != sha256:
            return f"{checkpoint}: {name} is damaged (its size or SHA-256 is not the saved one)"
    return None


def read_state(checkpoint: Path) -> State:
    """The state of a verified checkpoint."""
    values = json.loads((checkpoint / STATE).read_text())
    return State(values["step"], Cursor.from_json(values["cursor"]), values["world_size"], values["fixed"])


def resume(engine: Engine, checkpoint: Path, saved_by: int) -> None:
    """Bring the engine to where a verified checkpoint, saved by so many ranks, left it; all ranks call.

    Where there are other ranks now, rank 0 first converts DeepSpeed's files to a universal checkpoint, aside.
    """
    if saved_by == engine.world.size:
        engine.load(checkpoint, ENGINE)
        return
    universal = checkpoint.parent.parent / "universal" / checkpoint.name
    on_rank_0 = engine.world.rank == 0
    if on_rank_0:
        print(f"{checkpoint.name} was saved by {saved_by} ranks: converting it for {engine.world.size}", flush=True)
    _together(engine, "convert", universal, lambda: _convert(checkpoint / ENGINE, universal) if on_rank_0 else None)
    engine.load(universal.parent, universal.name, universal=True)
    _together(engine, "clear away", universal, lambda: shutil.rmtree(universal.parent) if on_rank_0 else None)


def check_continues(checkpoint: Path, fixed: Mapping[str, Any]) -> None:
    """Refuse to continue a run whose numbers would not be those that the saved one would have had.

    What a checkpoint says nothing of, which older code saved, is not compared.
    """
    saved = read_state(checkpoint).fixed
    for key, was, now in _differences(saved, {key: value for key, value in fixed.items() if key in saved}):
        raise InputError(f"{checkpoint}: saved with {key}={was}, the recipe now says {now}")


def folder(run: Path, step: int) -> Path:
    """Where a run's checkpoint of a step is."""
    return run / "checkpoints" / f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint folder is of."""
    return int(checkpoint.name.removeprefix("step-"))


def newest_first(run: Path) -> list[Path]:
    """Every finished checkpoint folder, newest first; one under another name, as a copy set aside, is none."""
    found = [path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-[0-9]{8,}", path.name)]
    return sorted(found, key=step_of, reverse=True)


def _differences(was: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every dotted key in which two plain values differ, with what each has there."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            yield from _differences(was.get(name), now.get(name), f"{key}.{name}" if key and name else key or name)
    elif was != now:
        yield key, was, now


def _together(engine: Engine, verb: str, path: Path, part: Callable[[], object]) -> None:
    """Do this rank's part of writing `path`; raises SaveError on every rank where one of them could not `verb` it."""
    problem = None
    try:
        part()
    except (OSError, SafetensorError, InputError) as error:
        problem = f"{path}: cannot {verb} a checkpoint: {error}"
    problems = [said for said in engine.gather(problem) if said]
    if problems:
        raise SaveError(problems[0])


def _prepare(partial: Path) -> None:
    for stale in partial.parent.glob("step-*.partial"):
        shutil.rmtree(stale)
    make_directory(partial / ENGINE)


def _finish(partial: Path, final: Path, weights: Mapping[str, Any], state: State, about: Mapping[str, bytes]) -> None:
    """Rank 0's part, when every rank's files are there: the common files, the manifest, the name."""
    save_file(dict(weights), partial / WEIGHTS)
    for name, content in about.items():
        (partial / name).write_bytes(content)
    values = {
        "step": state.step,
        "world_size": state.world_size,
        "fixed": state.fixed,
        "cursor": state.cursor.to_json(),
    }
    (partial / STATE).write_text(json.dumps(values, indent=1))
    files = {str(file.relative_to(partial)): _vouch(file) for file in _files(partial)}
    with whole_file(partial / MANIFEST) as manifest:
        manifest.write(json.dumps({"format": FORMAT, "files": files}, indent=1).encode())
    shutil.rmtree(final, ignore_errors=True)  # a damaged one that the run passed over when it resumed
    os.replace(partial, final)
    sync_directory(final.parent)


def _convert(source: Path, universal: Path) -> None:
    """DeepSpeed's files of one number of ranks, as one that any number can load, at `universal`; atomic."""
    partial = universal.with_name(f"{universal.name}.partial")
    shutil.rmtree(universal.parent, ignore_errors=True)
    make_directory(partial)
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
    options = ["--input_folder", str(source), "--output_folder", str(partial), "--num_extract_workers", "1"]
    done = subprocess.run([*command, *options, "--num_merge_workers", "1"], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(universal.parent, ignore_errors=True)
        last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise InputError(f"{source}: DeepSpeed could not convert it: {last}")
    os.replace(partial, universal)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _vouch(file: Path) -> dict[str, Any]:
    """A file's size and hash, once it is on disk."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
