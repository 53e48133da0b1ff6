"""A run's events: TensorBoard's in order after a stop, and Weights & Biases' beside them as one run."""

import re
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.events import WANDB_ID, open_events
from deepsiam.trainer.training.run.monitor import Monitor
from tests import toy

needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="no wandb: pip install 'deepsiam[wandb]'")


def recipe(run: Path, **changes: object) -> FinetuneRecipe:
    return build(FinetuneRecipe, toy.finetune_values(run, Path("c"), init_from="p", **changes), "test")


def monitor(of: FinetuneRecipe, start: int, rank: int = 0) -> Monitor:
    of.run.mkdir(exist_ok=True)
    device = torch.device("cpu")
    engine = SimpleNamespace(world=World(rank, 1, rank, 1), terms=["softmax"], device=device)
    engine.forward_clock = DeviceClock(device)
    return Monitor(of, engine, ("",), start)  # type: ignore[arg-type]


@needs_wandb
def test_an_offline_run_is_kept_in_its_folder_and_resumed_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = set()
    for start, value in ((0, 0.0625), (5, 0.125)):
        with closing(monitor(recipe(tmp_path / "run", wandb="siamese"), start)) as own:
            own.probed(start + 1, {"ndcg@10": value})
        ids.add((tmp_path / "run" / WANDB_ID).read_text())
    assert len(ids) == 1
    kept = [file.read_bytes() for file in sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))]
    assert len(kept) == 2
    for content, value in zip(kept, (b"0.0625", b"0.125"), strict=True):
        for part in (*(each.encode() for each in ids), b"siamese", b"probe/ndcg@10", value):
            assert part in content
    assert toy.scalars(tmp_path / "run", "probe/ndcg@10") == {1: 0.0625, 6: 0.125}  # TensorBoard has them, too


@needs_wandb
def test_other_ranks_and_recipes_without_the_key_start_nothing(tmp_path: Path) -> None:
    for rank, changes in ((1, {"wandb": "siamese"}), (0, {})):
        with closing(monitor(recipe(tmp_path / "run", **changes), 0, rank)) as own:
            assert own.wandb is None
    assert not (tmp_path / "run" / "wandb").exists()


@needs_wandb
def test_where_it_cannot_start_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def fails(**_: object) -> None:
        raise wandb.errors.CommError("no network")

    monkeypatch.setattr(wandb, "init", fails)
    with pytest.raises(InputError, match="wandb: no network; with WANDB_MODE=offline"):
        monitor(recipe(tmp_path / "run", wandb="siamese"), 0)


def test_the_key_is_no_part_of_a_recipe_that_does_not_use_it(tmp_path: Path) -> None:
    assert "wandb" not in recipe(tmp_path).model_dump()
    assert recipe(tmp_path, wandb="siamese").model_dump()["wandb"] == "siamese"
    with pytest.raises(InputError, match=re.escape("wandb")):
        recipe(tmp_path, wandb="")


def write(folder: Path, steps: range, value: float) -> None:
    """Write a loss of every step as a process would that begins at the first of them."""
    with open_events(folder, steps.start) as events:
        for step in steps:
            events.add_scalar("loss", value, step)


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_a_resumed_run_is_read_after_the_first_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The clock goes back before the second start, stands still, or goes on."""
    began = time.time()
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began)
    write(tmp_path, range(1, 9), 1.0)
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began + seconds)
    for start in (5, 7):
        write(tmp_path, range(start, 11), float(start))
    read = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in read] == [
        *((step, 1.0) for step in range(1, 5)),
        *((step, 5.0) for step in range(5, 7)),
        *((step, 7.0) for step in range(7, 11)),
    ]
