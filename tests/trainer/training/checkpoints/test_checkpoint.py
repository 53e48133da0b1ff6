"""Checkpoints: which are trusted, skipped or pruned; resuming with other settings, ranks or micro-batches."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.data_prep.common.files import replace_folder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.checkpoint import SaveError, State
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import Position, Skip
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.engine.hashed_file import FileEntry, hashed_file
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.gains import Best, Plateau
from deepsiam.trainer.training.recipe.schema import CheckpointConfig
from tests.trainer.runs import STEP, write_run
from tests.trainer.training.data.integers import UNEVEN, items, lanes_of, order_of
from tests.trainer.training.engine.full_disk import files_of_at_most

CURSORS, CURSOR = TypeAdapter(Cursor), Cursor([], micro_sizes={0: 4})


class OneRank:
    """An engine of one rank, without DeepSpeed's files."""

    world, average = World(0, 1, 0, 1), None

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (3,)}

    def full_weights(self) -> Iterator[torch.Tensor]:
        yield torch.zeros(3)

    def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
        return {}

    def gather(self, value: Any) -> list[Any]:
        return [value]


class WritesFiles(OneRank):
    """An engine that writes and reports one file, and leaves another one that it does not report."""

    def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
        with hashed_file(folder / tag / "reported") as file:
            file.write(b"moments")
        (folder / tag / "offloaded").mkdir()
        (folder / tag / "offloaded" / "moments").write_bytes(b"more")
        return {f"{tag}/reported": file.entry()}


def save(
    run: Path, step: int = STEP, engine: Any = None, files: Mapping[str, bytes] | None = None, **policy: int
) -> Path:
    """Save a checkpoint of a step as a run does."""
    writer: Any = engine or OneRank()
    return checkpoint.save(run, writer, State(step, CURSOR, 1, {}), files or {}, CheckpointConfig(**policy))


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)


@pytest.fixture
def newest(run: Path) -> Path:
    """The checkpoint of the run."""
    return checkpoint.folder(run, STEP)


def change_state(folder: Path, **changes: Any) -> None:
    """Change values in a checkpoint's state.json, and nothing else."""
    state = json.loads((folder / checkpoint.STATE).read_text())
    (folder / checkpoint.STATE).write_text(json.dumps(state | changes))


def test_the_newest_intact_one_is_used_and_a_damaged_one_skipped(run: Path, newest: Path) -> None:
    first = checkpoint.newest(run)
    second = Path(shutil.copytree(newest, checkpoint.folder(run, 20)))
    assert checkpoint.newest(run) == second
    weights = bytearray((second / checkpoint.WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (second / checkpoint.WEIGHTS).write_bytes(weights)
    assert checkpoint.newest(run) == first
    assert load_trained(run).checkpoint == first


MANIFEST, WEIGHTS = checkpoint.MANIFEST, checkpoint.WEIGHTS
OF_FILES = f'{{"format": {checkpoint.FORMAT}, "files": %s}}'


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        *((name, damaged) for name in (WEIGHTS, MANIFEST) for damaged in (None, slice(40))),
        (MANIFEST, OF_FILES % [1]),
        (MANIFEST, OF_FILES % f'{{"{WEIGHTS}": {{}}}}'),
    ],
)
def test_every_damage_is_named(run: Path, newest: Path, name: str, damaged: str | slice | None) -> None:
    assert checkpoint.verify(newest) is None
    content = (newest / name).read_bytes()
    (newest / name).unlink()
    if damaged is not None:
        (newest / name).write_bytes(content[damaged] if isinstance(damaged, slice) else damaged.encode())
    assert name in (checkpoint.verify(newest) or "")
    with pytest.raises(InputError, match="no older checkpoint is intact either"):
        checkpoint.newest(run)


def test_only_names_of_checkpoints_are_checkpoints_and_sort_as_numbers(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    steps = [100_000_000, 99_999_999, 20, 1]
    for name in ["step-00000002.bak", "step-00000003 (copy)", "step-7", "step-latest", "step-00000005.partial"]:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert checkpoint.newest(tmp_path) is None
    for step in steps:
        checkpoint.folder(tmp_path, step).mkdir()
    assert [checkpoint.step_of(path) for path in checkpoint.newest_first(tmp_path)] == steps


SETTINGS = {"seed": 1, "batch.micro": 4, "trunk": {"id2label": {"0": "a"}}, "data sha256": {"b": "f0", "a": "f1"}}
DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"batch.micro": 8}, "batch.micro=4, the recipe now says 8: .* so set batch.micro=4"),
    ({"trunk": {"id2label": {"0": "b"}}}, "trunk.id2label.0=a, the recipe now says b"),
    ({"trunk": None}, "trunk={'id2label': .*, the recipe now says None"),
    ({"data sha256": {"b": "f1", "a": "f1"}}, "data sha256.b=f0, the recipe now says f1"),
    ({"data sha256": {"a": "f1", "b": "f0"}}, "in the order b, a, the recipe now says a, b: keep the order"),
]


@pytest.mark.parametrize(("changes", "words"), DIFFERENCES)
def test_a_run_resumes_only_with_the_same_order_of_data(newest: Path, changes: dict[str, Any], words: str) -> None:
    change_state(newest, fixed=SETTINGS)
    checkpoint.check_continues(newest, {**SETTINGS, "method": {"name": "newer than the checkpoint"}})
    without = {key: value for key, value in SETTINGS.items() if key != "batch.micro"}
    checkpoint.check_continues(newest, without)  # for a method whose loss does not depend on it
    with pytest.raises(InputError, match=words):
        checkpoint.check_continues(newest, {**SETTINGS, **changes})


def test_all_of_a_state_is_read_again(newest: Path) -> None:
    cursor = Cursor([[Position(0, 1, 2)]], 6, {Skip(0, 1, 3, 0, "gone")}, {0: 4})
    state = State(3, cursor, 2, {"seed": 1}, Plateau(1 / 3, 2, 0.4**3), Best("ndcg@10 of dev", 0.5, 2, 3, 1))
    (newest / checkpoint.STATE).write_bytes(state.to_json())
    assert checkpoint.read_state(newest) == state
    change_state(newest, cursor={"positions": [], "micro_sizes": {}})
    with pytest.raises(InputError, match="state.json: cursor.micro_sizes: field required"):
        checkpoint.read_state(newest)


def test_a_save_replaces_a_damaged_checkpoint_of_its_step_and_removes_what_a_killed_one_left(
    run: Path, newest: Path
) -> None:
    (newest / WEIGHTS).write_bytes(b"damaged")
    for name in ("step-00000099.partial", "step-00000007.old.partial"):
        shutil.copytree(newest, run / "checkpoints" / name)
    saved = save(run)
    assert checkpoint.verify(saved) is None
    assert [path.name for path in (run / "checkpoints").iterdir()] == [saved.name]


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
    saved = save(tmp_path, engine=WritesFiles(), files={"recipe.yaml": b"a: 1"})
    assert checkpoint.verify(saved) is None
    assert (saved / "recipe.yaml").read_bytes() == b"a: 1"
    assert checkpoint.read_state(saved) == State(STEP, CURSOR, 1, {})


def test_a_file_that_cannot_be_read_is_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (STEP, STEP + 1):
        newest = save(tmp_path, step, WritesFiles())
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

    saved = save(tmp_path, engine=Flips())
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

    with files_of_at_most(200), pytest.raises(SaveError, match="File too large: '.*weights.safetensors'"):
        save(tmp_path, engine=Large())
    assert gathered == ["a", "b", "c"]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_newest_are_kept_and_what_is_no_intact_checkpoint_of_this_run_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-00000002.bak").mkdir(parents=True)
    save(tmp_path, 30)  # a resume has passed over this one
    (checkpoint.folder(tmp_path, 30) / checkpoint.WEIGHTS).write_bytes(b"damaged")
    for step in range(1, 8):
        save(tmp_path, step, keep=2, keep_every=4)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-00000002.bak", "step-00000004", "step-00000006", "step-00000007", "step-00000030"]


def test_the_message_of_a_failed_conversion_names_it(newest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_convert", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(InputError, match=r"universal/step-00000007: cannot convert a checkpoint: .*No space left"):
        checkpoint.resume(OneRank(), newest, saved_by=2)  # type: ignore[arg-type]


def test_the_converted_checkpoint_stays_until_every_rank_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as rank 0 of 2, which removes it: the other rank may still be reading until it joins the gather."""
    universal, events = tmp_path / "universal" / "step-00000007", []

    class Engine(SimpleNamespace):
        world, average = SimpleNamespace(rank=0, size=2), None

        def load(self, folder: Path, tag: str, *, universal: bool) -> None:
            events.append(("load", (folder / tag).is_dir()))

        def gather(self, value: Any) -> list[Any]:
            events.append(("gather", universal.is_dir()))
            return [value] * self.world.size

    monkeypatch.setattr(checkpoint, "_convert", lambda source, universal: universal.mkdir(parents=True))
    checkpoint.resume(Engine(), tmp_path / "checkpoints" / "step-00000007", 3)  # type: ignore[arg-type]
    loaded = events.index(("load", True))
    assert ("gather", True) in events[loaded:]
    assert not universal.parent.exists()


BATCH = 24
Consumed = dict[tuple[int, int], list[tuple[int, int]]]  # the examples of each (source, lane), in order


def mixed(micro: int) -> Order:
    lanes = {"lanes": 12, "micro_batch": micro}
    return order_of(lanes_of([2] * 40 + UNEVEN, **lanes), lanes_of([1] * 12, number=1, **lanes), weights=(2, 1))


def consume(order: Order, cursor: Cursor, steps: range, micro: int, ranks: int, consumed: Consumed) -> Cursor:
    """Read the data of some steps as ranks that resume at a cursor would; add them to `consumed`."""
    cursor = cursor.with_micro(micro, steps.start)
    streams = [Loader(order, rank, ranks, 0).micro_batches(cursor) for rank in range(ranks)]
    own = [CURSORS.validate_json(CURSORS.dump_json(cursor)) for _ in range(ranks)]
    for _ in steps:
        taken = [list(islice(stream, BATCH // micro // ranks)) for stream in streams]
        for batch in sorted((batch for batches in taken for batch in batches), key=lambda batch: batch.index):
            consumed.setdefault((batch.source, batch.lane), []).extend(items([batch]))
        for cursor_of_rank, batches in zip(own, taken, strict=True):
            cursor_of_rank.advance(batches, BATCH // micro)
    return Cursor.merged(own)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([(1, 4), (2, 3), (2, 12), (4, 2), (6, 1), (12, 2), (24, 1)])),
        min_size=2,
        max_size=4,
    )
)
def test_micro_batches_of_another_size_lose_and_repeat_no_example(parts: list[tuple[int, tuple[int, int]]]) -> None:
    """Each part: a number of steps, with a micro-batch size and a number of ranks that can share the micro-batches."""
    consumed: Consumed = {}
    cursor, step = Cursor(mixed(1).start(), micro_sizes={0: parts[0][1][0]}), 0
    for steps, (micro, ranks) in parts:
        cursor = consume(mixed(micro), cursor, range(step, step + steps), micro, ranks, consumed)
        step += steps
        assert cursor.micro_batches * micro == step * BATCH
        assert cursor.micro == micro
    assert sum(map(len, consumed.values())) == step * BATCH
    for (source, lane), seen in consumed.items():  # the same as the lane's examples read one by one
        lanes = list(mixed(1).sources.values())[source]
        alone = lanes.micro_batches(lane, mixed(1).start()[source][lane])
        assert seen == items(islice(alone, len(seen)))
