"""Checkpoints: which are trusted, skipped or pruned, and what a resumed run may not change."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.data_prep.common.files import replace_folder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.checkpoint import SaveError, State
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import Position, Skip
from deepsiam.trainer.training.engine.hashed_file import FileEntry, hashed_file
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.plateau import Plateau
from deepsiam.trainer.training.recipe.schema import CheckpointConfig
from tests.trainer.runs import STEP, write_run
from tests.trainer.training.engine.full_disk import files_of_at_most

CURSOR = Cursor([], micro_sizes={0: 4})


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)


def later_copy(run: Path, step: int) -> Path:
    return Path(shutil.copytree(checkpoint.newest(run) or run, checkpoint.folder(run, step)))


def test_the_newest_intact_one_is_used_and_a_damaged_one_skipped(run: Path) -> None:
    first = checkpoint.newest(run)
    assert first is not None
    second = later_copy(run, 20)
    assert checkpoint.newest(run) == second
    weights = bytearray((second / checkpoint.WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (second / checkpoint.WEIGHTS).write_bytes(weights)
    assert checkpoint.newest(run) == first
    assert load_trained(run).checkpoint == first


@pytest.mark.parametrize(
    "damage", ["missing file", "truncated", "no manifest", "manifest cut short", "manifest a list", "manifest empty"]
)
def test_every_damage_is_named(run: Path, damage: str) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    assert checkpoint.verify(newest) is None
    weights, manifest = newest / checkpoint.WEIGHTS, newest / checkpoint.MANIFEST
    if damage == "missing file":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "manifest a list":
        manifest.write_text(json.dumps({"format": checkpoint.FORMAT, "files": [1]}))
    elif damage == "manifest empty":
        manifest.write_text(json.dumps({"format": checkpoint.FORMAT, "files": {checkpoint.WEIGHTS: {}}}))
    else:
        manifest.write_text(manifest.read_text()[:40])
    problem = checkpoint.verify(newest)
    assert problem is not None
    assert (checkpoint.MANIFEST if "manifest" in damage else checkpoint.WEIGHTS) in problem
    with pytest.raises(InputError, match="no older checkpoint is intact either"):
        checkpoint.newest(run)


def test_a_half_written_one_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-00000005.partial").mkdir(parents=True)
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "nowhere") is None


def test_only_names_of_checkpoints_are_checkpoints_and_sort_as_numbers(tmp_path: Path) -> None:
    steps = [100_000_000, 99_999_999, 20, 1]
    for name in ["step-00000002.bak", "step-00000003 (copy)", "step-7", "step-latest"]:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    for step in steps:
        checkpoint.folder(tmp_path, step).mkdir()
    assert [checkpoint.step_of(path) for path in checkpoint.newest_first(tmp_path)] == steps


def test_a_run_resumes_only_with_the_same_order_of_data(run: Path) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    state = json.loads((newest / checkpoint.STATE).read_text())
    cursor = Cursor([[Position(0, 1, 2)]], 6, {Skip(0, 1, 3, 0, "gone")}, {0: 4})
    fixed = {"seed": 1, "batch.micro": 4, "trunk": {"id2label": {"0": "a"}}, "data sha256": {"": "f0"}}
    state |= {"fixed": fixed, "cursor": cursor.to_json(), "world_size": 2}
    (newest / checkpoint.STATE).write_text(json.dumps(state))
    assert checkpoint.read_state(newest).cursor == cursor
    checkpoint.check_continues(newest, {**fixed, "method": {"name": "newer than the checkpoint"}})
    without = {key: value for key, value in fixed.items() if key != "batch.micro"}
    checkpoint.check_continues(newest, without)  # for a method whose loss does not depend on it
    for changed, words in [
        ({"seed": 1, "batch.micro": 8}, "batch.micro=4, the recipe now says 8: .* so set batch.micro=4"),
        ({"trunk": {"id2label": {"0": "b"}}}, "trunk.id2label.0=a, the recipe now says b"),
        ({"trunk": None}, "trunk={'id2label': .*, the recipe now says None"),
        ({"data sha256": {"": "f1"}}, "data sha256=f0, the recipe now says f1"),
    ]:
        with pytest.raises(InputError, match=words):
            checkpoint.check_continues(newest, {**fixed, **changed})


def test_the_sources_of_a_mix_keep_their_order(run: Path) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    state = json.loads((newest / checkpoint.STATE).read_text())
    state |= {"fixed": {"data sha256": {"b": "f0", "a": "f1"}}}
    (newest / checkpoint.STATE).write_text(json.dumps(state))
    checkpoint.check_continues(newest, {"data sha256": {"b": "f0", "a": "f1"}})
    with pytest.raises(InputError, match="of data.mix in the order b, a, the recipe now says a, b: keep the order"):
        checkpoint.check_continues(newest, {"data sha256": {"a": "f1", "b": "f0"}})


def test_a_checkpoint_from_before_there_was_a_choice_was_trained_by_adamw_all_of_it(run: Path) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    checkpoint.check_continues(newest, {"optimizer.name": "adamw", "optimizer.train": "all", "refresh": None})
    for changed, words in [
        ({"optimizer.name": "adamax"}, "optimizer.name=adamw, the recipe now says adamax"),
        ({"optimizer.train": 2}, "optimizer.train=all, the recipe now says 2"),
        ({"refresh": {"every": 2}}, "refresh=None, the recipe now says {'every': 2}"),
    ]:
        with pytest.raises(InputError, match=words):
            checkpoint.check_continues(newest, changed)


def test_the_plateau_is_in_the_state(run: Path) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    assert checkpoint.read_state(newest).plateau == Plateau()  # absent from older checkpoints
    state = State(3, CURSOR, 2, {"seed": 1}, Plateau(1 / 3, 2, 0.4**3))
    (newest / checkpoint.STATE).write_bytes(state.to_json())
    assert checkpoint.read_state(newest) == state


def test_the_next_save_removes_what_a_killed_one_left(run: Path) -> None:
    checkpoints = run / "checkpoints"
    for name in ("step-00000099.partial", "step-00000007.old.partial"):
        shutil.copytree(checkpoint.newest(run) or run, checkpoints / name)
    checkpoint._prepare(checkpoints / "step-00000100.partial")
    assert [path.name for path in checkpoints.glob("step-*.partial")] == ["step-00000100.partial"]


class OneRank:
    """An engine of one rank, without DeepSpeed's files."""

    world = World(0, 1, 0, 1)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (3,)}

    def full_weights(self) -> Iterator[torch.Tensor]:
        yield torch.zeros(3)

    def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
        return {}

    def gather(self, value: Any) -> list[Any]:
        return [value]


def test_a_save_replaces_a_damaged_checkpoint_of_its_step(run: Path) -> None:
    (checkpoint.folder(run, STEP) / checkpoint.WEIGHTS).write_bytes(b"damaged")
    state = State(STEP, CURSOR, 1, {})
    saved = checkpoint.save(run, OneRank(), state, {}, CheckpointConfig())  # type: ignore[arg-type]
    assert checkpoint.verify(saved) is None
    assert [path.name for path in (run / "checkpoints").iterdir()] == [saved.name]


class WritesFiles(OneRank):
    """An engine that writes and reports one file, and leaves another one that it does not report."""

    def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
        with hashed_file(folder / tag / "reported") as file:
            file.write(b"moments")
        (folder / tag / "offloaded").mkdir()
        (folder / tag / "offloaded" / "moments").write_bytes(b"more")
        return {f"{tag}/reported": file.entry()}


def test_every_file_is_in_the_manifest_and_on_disk_before_the_checkpoint_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set(), os.fsync

    def record(descriptor: int) -> None:
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.add(path.with_name(path.name.removesuffix(".partial")))

    def rename(new: Path, path: Path) -> None:
        manifest = json.loads((new / checkpoint.MANIFEST).read_text())
        present = {str(file.relative_to(new)) for file in new.rglob("*") if file.is_file()}
        assert present == {*manifest["files"], checkpoint.MANIFEST}
        assert present == {"weights.safetensors", "recipe.yaml", "state.json", "manifest.json", *engine_files}
        assert {new.with_name(path.name), *(file for file in new.rglob("*"))} <= synced
        replace_folder(new, path)

    engine_files = {"engine/reported", "engine/offloaded/moments"}
    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(checkpoint, "replace_folder", rename)
    state = State(STEP, CURSOR, 1, {})
    saved = checkpoint.save(tmp_path, WritesFiles(), state, {"recipe.yaml": b"a: 1"}, CheckpointConfig())  # type: ignore[arg-type]
    assert checkpoint.verify(saved) is None
    assert (saved / "recipe.yaml").read_bytes() == b"a: 1"
    assert checkpoint.read_state(saved) == state


def test_a_file_that_cannot_be_read_is_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (STEP, STEP + 1):
        newest = checkpoint.save(tmp_path, WritesFiles(), State(step, CURSOR, 1, {}), {}, CheckpointConfig())  # type: ignore[arg-type]
    hashed = checkpoint.sha256_of

    def broken(file: Path) -> str:
        if newest in file.parents:
            raise StoppedError(f"{file}: cannot read: Input/output error")
        return hashed(file)

    monkeypatch.setattr(checkpoint, "sha256_of", broken)
    assert "cannot be read" in (checkpoint.verify(newest) or "")
    assert checkpoint.newest(tmp_path) == checkpoint.folder(tmp_path, STEP)


def test_a_byte_that_changes_before_the_manifest_is_written_is_found(tmp_path: Path) -> None:
    class Flips(WritesFiles):
        def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
            written = super().save(folder, tag)
            (folder / tag / "reported").write_bytes(b"mOments")
            return written

    saved = checkpoint.save(tmp_path, Flips(), State(STEP, CURSOR, 1, {}), {}, CheckpointConfig())  # type: ignore[arg-type]
    assert "engine/reported is damaged" in (checkpoint.verify(saved) or "")


def test_rank_0_gathers_all_weights_even_if_it_cannot_write_them(tmp_path: Path) -> None:
    """Otherwise the other ranks would wait for it forever."""
    gathered = []

    class Large(OneRank):
        def weight_shapes(self) -> dict[str, tuple[int, ...]]:
            return {"a": (100,), "b": (1,), "c": (1,)}

        def full_weights(self) -> Iterator[torch.Tensor]:
            for name, shape in self.weight_shapes().items():
                gathered.append(name)
                yield torch.zeros(shape)

    state = State(STEP, CURSOR, 1, {})
    with files_of_at_most(200), pytest.raises(SaveError, match="File too large: '.*weights.safetensors'"):
        checkpoint.save(tmp_path, Large(), state, {}, CheckpointConfig())  # type: ignore[arg-type]
    assert gathered == ["a", "b", "c"]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_pruning_keeps_folders_that_are_not_checkpoints(tmp_path: Path) -> None:
    policy = CheckpointConfig(keep=2, keep_every=4)
    (tmp_path / "checkpoints" / "step-00000002.bak").mkdir(parents=True)
    for step in range(1, 8):
        state = State(step, CURSOR, 1, {})
        checkpoint.save(tmp_path, OneRank(), state, {}, policy)  # type: ignore[arg-type]
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-00000002.bak", "step-00000004", "step-00000006", "step-00000007"]


def test_a_checkpoint_that_a_resume_passed_over_is_none_of_those_to_keep(tmp_path: Path) -> None:
    policy = CheckpointConfig(keep=2)
    for step in (2, 3):
        checkpoint.save(tmp_path, OneRank(), State(step, CURSOR, 1, {}), {}, policy)  # type: ignore[arg-type]
    weights = checkpoint.folder(tmp_path, 3) / checkpoint.WEIGHTS
    weights.write_bytes(bytes(weights.stat().st_size))
    assert checkpoint.newest(tmp_path) == checkpoint.folder(tmp_path, 2)

    def saved(step: int) -> list[str]:
        checkpoint.save(tmp_path, OneRank(), State(step, CURSOR, 1, {}), {}, policy)  # type: ignore[arg-type]
        return [path.name for path in checkpoint.newest_first(tmp_path)]

    (checkpoint.folder(tmp_path, 3)).rename(checkpoint.folder(tmp_path, 30))  # so that there is a step in between
    assert saved(5) == ["step-00000030", "step-00000005", "step-00000002"]
    assert saved(7) == ["step-00000030", "step-00000007", "step-00000005"]


def test_the_message_of_a_failed_conversion_names_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = checkpoint.newest(run)
    assert newest is not None
    monkeypatch.setattr(checkpoint, "_convert", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(InputError, match=r"universal/step-00000007: cannot convert a checkpoint: .*No space left"):
        checkpoint.resume(OneRank(), newest, saved_by=2)  # type: ignore[arg-type]
