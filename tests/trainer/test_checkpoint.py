"""Checkpoints: what is trusted, what is passed over, what must agree. Saving is tested in test_distributed.py."""

import json
import shutil
from pathlib import Path

import pytest

from data_prep.errors import InputError
from data_prep.files import whole_file
from tests.trainer.runs import write_run
from trainer import checkpoint, trained
from trainer.cursor import Cursor
from trainer.lanes import Position, Skip


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)


def later_copy(run: Path, step: int) -> Path:
    return Path(shutil.copytree(checkpoint.newest(run) or run, checkpoint.folder(run, step)))


def test_the_newest_whole_one_is_found_and_a_damaged_one_passed_over(run: Path) -> None:
    first = checkpoint.newest(run)
    assert first is not None
    second = later_copy(run, 20)
    assert checkpoint.newest(run) == second
    weights = bytearray((second / checkpoint.WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (second / checkpoint.WEIGHTS).write_bytes(weights)
    assert checkpoint.newest(run) == first
    assert trained.load(run).checkpoint == first


@pytest.mark.parametrize("damage", ["missing file", "truncated", "no manifest", "manifest cut short"])
def test_every_damage_is_named(run: Path, damage: str) -> None:
    found = checkpoint.newest(run)
    assert found is not None
    assert checkpoint.verify(found) is None
    weights, manifest = found / checkpoint.WEIGHTS, found / checkpoint.MANIFEST
    if damage == "missing file":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:40])
    problem = checkpoint.verify(found)
    assert problem is not None
    assert (checkpoint.MANIFEST if "manifest" in damage else checkpoint.WEIGHTS) in problem
    with pytest.raises(InputError, match="no older checkpoint is whole either"):
        checkpoint.newest(run)


def test_a_half_written_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-00000005.partial").mkdir(parents=True)
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "nowhere") is None


def test_steps_sort_as_numbers(tmp_path: Path) -> None:
    names = [checkpoint.folder(tmp_path, step).name for step in (1, 99_999_999, 20)]
    assert sorted(names) == [names[0], names[2], names[1]]


def test_a_run_goes_on_only_where_its_order_of_data_is_the_same(run: Path) -> None:
    found = checkpoint.newest(run)
    assert found is not None
    state = json.loads((found / checkpoint.STATE).read_text())
    cursor = Cursor([[Position(0, 1, 2)]], 6, {Skip(0, 1, 3, 0, "gone")})
    state |= {"fixed": {"seed": 1, "batch.micro": 4}, "cursor": cursor.to_json(), "world_size": 2}
    (found / checkpoint.STATE).write_text(json.dumps(state))
    assert checkpoint.read_state(found).cursor == cursor
    checkpoint.check_continues(found, {"seed": 1, "batch.micro": 4})
    with pytest.raises(InputError, match="batch.micro=4, the recipe now says 8"):
        checkpoint.check_continues(found, {"seed": 1, "batch.micro": 8})


def test_what_a_killed_save_left_is_cleared_away(run: Path) -> None:
    checkpoints = run / "checkpoints"
    shutil.copytree(checkpoint.newest(run) or run, checkpoints / "step-00000099.partial")
    (checkpoints / "latest.partial").touch()  # killed between writing `latest` and renaming it
    checkpoint._prepare(checkpoints / "step-00000100.partial")
    assert [path.name for path in checkpoints.glob("step-*.partial")] == ["step-00000100.partial"]
    with whole_file(checkpoints / "latest") as latest:
        latest.write(b"step-00000100")
    assert not (checkpoints / "latest.partial").exists()
