"""Atomic checkpoints: written under a temporary name, hashed, renamed; verified before use.

RUN/checkpoints/step-00001000/
    weights.safetensors   every parameter in fp32, for fine-tuning, evaluation and export (no pickle)
    base.json             of a run with adapters: the encoder that they were added to, which the weights leave out
    recipe.yaml           the recipe as it ran
    imports.json          of a run with code of the user's own: its modules (see own_code.py)
    tokenizer.json        the tokenizer of its data
    trunk.json            the encoder's configuration
    state.json            step, every lane's position, validations, and the settings that a resumed run must match
    ema/                  with optimizer.ema, the moving average of the weights: a checkpoint to use, not to resume
    engine/               DeepSpeed's own files, one set per rank, to resume exactly (see engine/plain_files.py)
    manifest.json         size and SHA-256 of all of the above
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, remove, replace_folder, sha256_of, sync, whole_file
from deepsiam.data_prep.common.json_file import Count, InsideName, Record, read_json
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.engine.hashed_file import FileEntry, hashed_file, write_weights
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.gains import Best, Plateau
from deepsiam.trainer.training.recipe.schema import CheckpointConfig

if TYPE_CHECKING:  # imports DeepSpeed, which is not needed to read a checkpoint
    from deepsiam.trainer.training.engine.engine import Engine

WEIGHTS, STATE, MANIFEST, ENGINE = "weights.safetensors", "state.json", "manifest.json", "engine"
BEST_FOLDER = "best"  # folder in a run's
EMA = "ema"  # folder in a checkpoint's
FORMAT = 2
Result = TypeVar("Result")
RECIPE, IMPORTS = "recipe.yaml", "imports.json"
TOKENIZER, TRUNK, BASE = "tokenizer.json", "trunk.json", "base.json"
MICRO = "batch.micro"
LOCATIONS = ("shards", "collection")  # keys of `data` and of its sources that say where the data are
REMEDIES = {
    MICRO: ": examples are compared with their micro-batch, so set batch.micro={was}",
    "method.separators": ": set method.separators={was}",
    "init_from": ": leave it as it was (a resume does not read it), or start a new run folder",
}
HUB = "; if it is a model of the Hugging Face Hub, write hf://{}"
REMEDY = "it is damaged, or was not saved by this code: resume from another checkpoint"


class _Manifest(Record):
    """The content of manifest.json."""

    format: int
    files: dict[InsideName, FileEntry]


class SaveError(SharedError):
    """A checkpoint could not be written; nothing partial is left, and earlier checkpoints are intact."""


@dataclass(frozen=True)
class State:
    """The state of a run after `step` optimizer steps, and the settings that determine its numbers: state.json."""

    __pydantic_config__ = Record.model_config

    step: Count
    cursor: Cursor
    world_size: Annotated[int, Field(ge=1, lt=2**20)]
    # seed, method, initial weights, data, batch: a resumed run must match these
    resume_invariants: Annotated[dict[str, Any], Field(alias="fixed")]
    plateau: Plateau = Plateau()
    best: Best = Best()

    def to_json(self) -> bytes:
        """Return the content of state.json, which `read_state` reads."""
        return TypeAdapter(State).dump_json(self, indent=1, by_alias=True)


def save(run: Path, engine: Engine, state: State, sidecar_files: Mapping[str, bytes], policy: CheckpointConfig) -> Path:
    """Save a checkpoint with the small `sidecar_files` (name to content); all ranks call.

    Afterwards remove the older checkpoints that the policy does not keep. Raise SaveError as `write` does.
    """
    final = write(run, engine, state, sidecar_files)
    if engine.world.rank == 0:
        # newer ones were passed over when the run resumed, as damaged or another's: they are not counted
        since = [path for path in newest_first(run) if step_of(path) <= state.step]
        for path in since[policy.keep :]:
            if not policy.keep_every or step_of(path) % policy.keep_every:
                shutil.rmtree(path, ignore_errors=True)  # the next save tries again
    return final


def write(
    run: Path, engine: Engine, state: State, sidecar_files: Mapping[str, bytes], *, resumable: bool = True
) -> Path:
    """Write a checkpoint, with DeepSpeed's files if it is to be `resumable`; all ranks call.

    Raise SaveError on every rank if any of them cannot write (disk full).
    """
    final = folder(run, state.step)
    partial = final.with_name(f"{final.name}.partial")
    on_rank_0 = engine.world.rank == 0
    try:
        # each part ends with an exchange: no rank goes on to the next while another has failed or is behind
        _together(engine, "save", partial, lambda: _prepare(partial) if on_rank_0 else None)
        hashed = _together(engine, "save", partial, lambda: engine.save(partial, ENGINE) if resumable else {})
        hashed += _together(engine, "save", partial, lambda: _save_weights(engine, partial, WEIGHTS))
        if resumable and engine.average:
            with engine.averaged():
                hashed += _together(engine, "save", partial, lambda: _save_weights(engine, partial, f"{EMA}/{WEIGHTS}"))
        entries = {name: entry for rank_entries in hashed for name, entry in rank_entries.items()}
        contents = {**sidecar_files, STATE: state.to_json()}
        _together(engine, "save", partial, lambda: _finish(partial, final, contents, entries) if on_rank_0 else None)
    except SaveError:
        if on_rank_0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def save_best(run: Path, engine: Engine, state: State, sidecar_files: Mapping[str, bytes]) -> Path:
    """Save the weights of a run's best probe, in place of the best ones so far; all ranks call.

    RUN/best/checkpoints/step-00000400/ has the files of a checkpoint, without DeepSpeed's. So RUN/best is a run folder
    to all commands that use a trained model, and is never without a checkpoint: a new one appears in one rename, and
    only then is the earlier one removed. Raise SaveError as `write` does; the best ones so far are then intact.
    """
    saved = write(run / BEST_FOLDER, engine, state, sidecar_files, resumable=False)
    if engine.world.rank == 0:
        for path in newest_first(run / BEST_FOLDER):
            if path != saved:
                shutil.rmtree(path, ignore_errors=True)  # the next save tries again
    return saved


def newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run that passes verification; None if the run has no checkpoint.

    Raise InputError if all checkpoints are damaged; the message names what is wrong with the newest.
    """
    problems: list[str] = []
    for checkpoint in newest_first(run):
        problem = verify(checkpoint)
        if problem is None:
            if problems:
                print(f"{problems[0]}: using {checkpoint.name} instead", file=sys.stderr, flush=True)
            return checkpoint
        problems.append(problem)
    if problems:
        raise InputError(f"{problems[0]}; no older checkpoint is intact either: restore one, or start a new run folder")
    return None


def find(path: Path) -> Path:
    """Return an intact checkpoint: `path` itself, or the newest of the run there; raise InputError if there is none."""
    if not path.exists():
        is_hub_name = re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) and not path.parent.exists()
        raise InputError(f"{path}: no such folder{HUB.format(path) if is_hub_name else ''}")
    has_manifest = (path / MANIFEST).is_file()
    if has_manifest and any((path / name).is_file() for name in (WEIGHTS, STATE)):
        problem = verify(path)
        if problem:
            raise InputError(problem)
        return path
    checkpoint = newest(path)
    if checkpoint is None:
        hint = ", but perhaps shards, a collection or an index: name a run" if has_manifest else ": train it first"
        raise InputError(f"{path}: neither a checkpoint nor a run folder with one{hint}")
    return checkpoint


def verify(checkpoint: Path) -> str | None:
    """Check a checkpoint against its manifest; return what is wrong with it in one line, or None."""
    try:
        manifest = read_json(checkpoint / MANIFEST, _Manifest, "restore it from a copy")
    except InputError as error:
        return f"{checkpoint}: its {MANIFEST} is missing or damaged ({error})"
    if manifest.format != FORMAT:
        return f"{checkpoint}: its format is version {manifest.format}, but this code reads version {FORMAT}"
    with ThreadPoolExecutor(usable_cores()) as threads:  # hashing releases Python's lock
        problems = threads.map(lambda name: _damage(checkpoint / name, manifest.files[name]), manifest.files)
        for name, problem in zip(manifest.files, problems, strict=True):
            if problem:
                return f"{checkpoint}: {name} {problem}"
    return None


def _damage(file: Path, entry: FileEntry) -> str | None:
    try:
        if not file.is_file():
            return "is missing"
        is_whole = file.stat().st_size == entry["bytes"] and sha256_of(file) == entry["sha256"]
    except (InputError, OSError) as error:
        return f"cannot be read ({error})"
    if not is_whole:
        return "is damaged (its size or SHA-256 is not the saved one)"
    return None


def read_state(checkpoint: Path) -> State:
    """Read the state of a verified checkpoint; raise InputError where a value is of another type or out of bounds."""
    state = read_json(checkpoint / STATE, State, REMEDY)
    if not state.cursor.micro_sizes:
        raise InputError(f"{checkpoint / STATE}: cursor.micro_sizes: field required; {REMEDY}")
    return state


def write_manifest(checkpoint: Path, hashed: Mapping[str, FileEntry] | None = None) -> None:
    """Write the manifest of a checkpoint whose other files are complete; hash the files that are not in `hashed`.

    For example, states that DeepSpeed offloads to a disk and copies by itself were not hashed while written.
    """
    files = dict(hashed or {})
    for path in checkpoint.rglob("*"):
        name = str(path.relative_to(checkpoint))
        if path.is_dir():
            sync(path)  # the names of files are on disk when their folder is
        elif name not in files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    with whole_file(checkpoint / MANIFEST) as manifest:
        manifest.write(json.dumps({"format": FORMAT, "files": dict(sorted(files.items()))}, indent=1).encode())


def resume(engine: Engine, checkpoint: Path, saved_by: int) -> None:
    """Load the engine's state from a verified checkpoint that `saved_by` ranks saved; all ranks call.

    For another number of ranks, rank 0 first converts DeepSpeed's files to a temporary universal checkpoint.
    """
    if saved_by == engine.world.size:
        engine.load(checkpoint, ENGINE)
    else:
        _resume_on_others(engine, checkpoint, saved_by)
    if engine.average:
        engine.load_average(checkpoint / EMA / WEIGHTS)


def _resume_on_others(engine: Engine, checkpoint: Path, saved_by: int) -> None:
    universal = checkpoint.parent.parent / "universal" / checkpoint.name
    on_rank_0 = engine.world.rank == 0
    if on_rank_0:
        print(f"{checkpoint.name} was saved by {saved_by} ranks: converting it for {engine.world.size}", flush=True)
    _together(engine, "convert", universal, lambda: _convert(checkpoint / ENGINE, universal) if on_rank_0 else None)
    engine.load(universal.parent, universal.name, universal=True)
    engine.gather(None)  # until every rank has read it
    _together(engine, "remove", universal, lambda: shutil.rmtree(universal.parent) if on_rank_0 else None)


def check_continues(checkpoint: Path, invariants: Mapping[str, Any]) -> None:
    """Refuse to resume with settings that would change the run's numbers.

    Where the data are is not compared, if their SHA-256 are the saved ones.
    """
    saved = read_state(checkpoint).resume_invariants
    # trainer.trace, which reads the data alone, gives no settings of DeepSpeed; only some methods' need batch.micro
    keys = [key for key in saved if key in invariants]
    saved_values, values = ({key: settings[key] for key in keys} for settings in (saved, invariants))
    sources = [[*settings.get("data sha256", {})] for settings in (saved_values, values)]
    if saved_values.get("data sha256") == values.get("data sha256"):
        saved_values, values = _without_locations(saved_values), _without_locations(values)
    for key, saved_value, value in differences(saved_values, values):
        remedy = REMEDIES.get(key, "").format(was=saved_value)
        raise InputError(f"{checkpoint}: saved with {key}={saved_value}, the recipe now says {value}{remedy}")
    if sources[0] != sources[1]:  # positions go by the number of a source
        order = f"the order {', '.join(sources[0])}, the recipe now says {', '.join(sources[1])}"
        raise InputError(f"{checkpoint}: saved with the sources of data.mix in {order}: keep the order")


def folder(run: Path, step: int) -> Path:
    """Return the folder of a run's checkpoint after `step` optimizer steps."""
    return run / "checkpoints" / f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """Return the number of optimizer steps before a checkpoint, from its folder's name."""
    return int(checkpoint.name.removeprefix("step-"))


def newest_first(run: Path) -> list[Path]:
    """Return every finished checkpoint folder, newest first; folders with any other name are ignored."""
    checkpoints = [path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-[0-9]{8,}", path.name)]
    return sorted(checkpoints, key=step_of, reverse=True)


def _without_locations(invariants: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the folders or URLs of their data, in `data` and in each source of `data.mix`."""

    def strip(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: strip(part) for key, part in value.items() if key not in LOCATIONS}

    return {key: strip(value) if key == "data" else value for key, value in invariants.items()}


def differences(value: Any, other_value: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield every dotted key in which two plain values differ, with both values; None for a key that one lacks."""
    if isinstance(value, dict) and isinstance(other_value, dict):
        for name in {**value, **other_value}:
            path = f"{key}.{name}" if key and name else key or name
            yield from differences(value.get(name), other_value.get(name), path)
    elif value != other_value:
        yield key, value, other_value


def _together(engine: Engine, verb: str, path: Path, part: Callable[[], Result]) -> list[Result]:
    """Do this rank's part of writing `path`, and return the results of all ranks.

    Raise SaveError on every rank if any of them could not `verb` it.
    """
    result, problem = None, None
    try:
        result = part()
    except (OSError, InputError) as error:
        problem = f"{path}: cannot {verb} a checkpoint: {error}"
    results, problems = zip(*engine.gather((result, problem)), strict=True)
    for line in filter(None, problems):
        raise SaveError(line)
    return list(results)


def _prepare(partial: Path) -> None:
    for stale in partial.parent.glob("step-*.partial"):  # of a run that was killed in a save
        remove(stale)
    make_directory(partial / ENGINE)


def _save_weights(engine: Engine, partial: Path, name: str) -> dict[str, FileEntry]:
    """Write the model's weights to the file `name` on rank 0; all ranks call."""
    weights = engine.full_weights()
    try:
        if engine.world.rank != 0:
            return {}
        make_directory((partial / name).parent)
        with hashed_file(partial / name) as file:
            write_weights(file, engine.weight_shapes(), weights)
        return {name: file.entry()}
    finally:
        deque(weights, maxlen=0)  # every rank takes part in gathering every weight, even after an error


def _finish(partial: Path, final: Path, contents: Mapping[str, bytes], entries: Mapping[str, FileEntry]) -> None:
    """Write the small files and the manifest, beside those of `entries`, which the ranks have written; then rename."""
    files = dict(entries)
    for name, content in contents.items():
        with hashed_file(partial / name) as file:
            file.write(content)
        files[name] = file.entry()
    if (average := f"{EMA}/{WEIGHTS}") in files:
        for name, content in contents.items():
            (partial / EMA / name).write_bytes(content)
        write_manifest(partial / EMA, {WEIGHTS: files[average]})
    write_manifest(partial, files)
    replace_folder(partial, final)  # a damaged checkpoint may be there, if the run resumed from an earlier one


def _convert(source: Path, universal: Path) -> None:
    """Convert DeepSpeed's files into a checkpoint at `universal` that any number of ranks can load.

    It need not be atomic: a resume never reads what an earlier one left there.
    """
    shutil.rmtree(universal.parent, ignore_errors=True)
    make_directory(universal)
    command = [sys.executable, "-m", "deepsiam.trainer.training.engine.plain_files"]
    options = ["--input_folder", str(source), "--output_folder", str(universal), "--num_extract_workers", "1"]
    result = subprocess.run([*command, *options, "--num_merge_workers", "1"], capture_output=True, text=True)
    if result.returncode:
        shutil.rmtree(universal.parent, ignore_errors=True)
        line = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()[-1]
        raise InputError(f"{source}: DeepSpeed could not convert it: {line}")
