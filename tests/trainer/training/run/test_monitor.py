"""What a run reports: progress lines and TensorBoard's events, from rank 0 only; Weights and Biases' beside them."""

import errno
import re
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch._dynamo.utils import counters

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.encode import encode
from deepsiam.models.interface import MicroBatch
from deepsiam.models.layer_modes import compile_layers
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.trainer.training.data.lanes import START
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.engine import StepResult
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.events import WANDB_ID, open_events
from deepsiam.trainer.training.run.monitor import Monitor, duration
from tests import toy
from tests.models import tiny
from tests.toy import scalars


@dataclass
class TwinEngine:
    """An engine of one of two ranks; both ranks have the same values."""

    world: World
    terms: list[str]
    device = torch.device("cpu")
    forward_clock = DeviceClock(device)

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        return values * 2

    def gather(self, value: tuple[str, int]) -> list[tuple[str, int]]:
        return [(value[0], local_rank) for local_rank in (0, 1)]


def monitor(run: Path, rank: int = 0, start: int = 0, sources: tuple[str, ...] = ("",), of: Any = None) -> Monitor:
    """The monitor of a recipe, without one of a run of 10 steps."""
    engine: Any = TwinEngine(World(rank, 2, rank, 2), ["softmax" if of else "mlm"])
    method = SimpleNamespace(remarks=lambda losses: {} if losses.get("mlm") else {"mlm": "mlm is 0: look"})
    plain: Any = SimpleNamespace(run=run, steps=10, method=method, wandb=None, compile=False)
    return Monitor(of or plain, engine, sources, start)


def batch(source: int = 0, targets: int = 4, tokens: int = 100) -> LaneBatch:
    mask = (np.arange(100) < tokens).reshape(10, 10)
    micro_batch = MicroBatch({"attention_mask": mask}, {"mlm": targets}, int(mask.sum()))
    return LaneBatch(micro_batch, 0, source, 0, START, START, ())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of a monitor that is made after it; a test moves it."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("deepsiam.trainer.training.run.monitor.time", clock)
    return clock


@pytest.fixture
def m(tmp_path: Path) -> Monitor:
    """A monitor of rank 0."""
    return monitor(tmp_path)


def one_step(monitor: Monitor, step: int, loss: float, skipped: bool = False) -> None:
    result = StepResult(torch.tensor(0.5), 1.0, skipped, torch.tensor([[loss * 4]]))
    monitor.count([batch()], result)
    monitor.log(step, 1e-4, result, {"examples/wiki": 4.0 * step})


def test_a_layer_whose_first_step_is_counted_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    counters.clear()
    own = Mlm(build_trunk(tiny.CONFIG))
    compile_layers(own)
    ids = torch.full((2, 10), 7)

    def step() -> None:
        encode(own.trunk, ids, torch.ones(2, 10, dtype=torch.bool)).sum().backward()

    with closing(monitor(tmp_path)) as reports:
        reports.peak = 1e12
        with reports.counting_flops([batch()]):
            step()
        assert reports.flops_per_token is not None
        assert reports.flops_per_token > 0
        assert not counters["stats"]["unique_graphs"]
        with reports.counting_flops([batch()]):
            step()
    assert counters["stats"]["unique_graphs"] == 1


def test_a_compiled_step_is_not_run_without_the_compiler_to_count_it(tmp_path: Path) -> None:
    weight, steps = torch.ones(10, 10), list[int]()

    def evaluate(micro_batch: MicroBatch, source: int) -> None:
        assert source == 1
        _ = torch.ones(len(micro_batch.arrays["attention_mask"]), 10) @ weight

    with closing(monitor(tmp_path)) as reports:
        reports.peak, reports.recipe.compile = 1e12, True
        reports.engine.evaluate = evaluate  # type: ignore[method-assign,assignment]
        with reports.counting_flops([batch(source=1), batch()]):
            steps.append(1)
            _ = weight @ weight @ weight  # is not counted
    assert steps == [1]
    assert reports.flops_per_token == 3 * 2 * 10 * 10 * 10 / 100


def test_a_term_that_vanishes_is_said_once_by_rank_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, said in ((1, []), (0, ["step 2: mlm is 0: look", "step 5: mlm is 0: look"])):
        assert [*tmp_path.iterdir()] == []
        with closing(monitor(tmp_path, rank)) as own:
            for step, loss in enumerate((1.0, 0.0, 0.0, 2.0, 0.0), 1):
                one_step(own, step, loss)
        printed = capsys.readouterr()
        assert printed.err.splitlines() == said
        assert bool(printed.out) == bool(said)


def test_the_mean_is_over_targets_and_each_source_has_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = monitor(tmp_path, sources=("wiki", "books"))
    result = StepResult(torch.tensor(0.5), 1.0, False, torch.tensor([[8.0], [30.0], [2.0]]))
    m.count([batch(0, targets=4, tokens=97), batch(1, targets=10, tokens=91), batch(0, targets=1)], result)
    m.log(1, 1e-4, result, {"examples/wiki": 8.0})
    m.close()
    assert scalars(tmp_path, "examples/wiki") == {1: 8.0}
    assert scalars(tmp_path, "loss/mlm") == {1: pytest.approx(40 / 15)}
    assert scalars(tmp_path, "loss/mlm/wiki") == {1: 2.0}
    assert scalars(tmp_path, "loss/mlm/books") == {1: 3.0}
    assert scalars(tmp_path, "padding_share") == {1: pytest.approx(0.04)}
    assert "wiki" not in capsys.readouterr().out


def test_events_and_a_line_with_rate_and_eta(m: Monitor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m.peak, m.flops_per_token = 1e12, 1e6
    one_step(m, 1, 2.5)
    one_step(m, 2, 2.25, skipped=True)
    m.close()
    assert scalars(tmp_path, "loss/mlm") == {1: 2.5, 2: 2.25}
    assert scalars(tmp_path, "skipped_steps") == {1: 0, 2: 1}
    assert scalars(tmp_path, "grad_norm")[1] == 0.5
    rate = scalars(tmp_path, "tokens_per_second")[1]
    assert scalars(tmp_path, "mfu")[1] == pytest.approx(1e6 * rate / (1e12 * 2), rel=1e-5)
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("step 1/10  mlm 2.5000  lr 1.00e-04  grad 0.50")
    assert "tokens/s" in line
    assert "ETA" in line


def test_what_follows_a_checkpoint_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that are stopped after steps 2 and 3, and resumed from the checkpoint of step 2."""
    negatives = {"of_a_query": 20.0, "new": 1.0, "above_relevant": 0.5, "minutes": 2.0}
    for start, steps in ((0, (1, 2)), (2, (3,)), (2, (3, 4))):
        m = monitor(tmp_path, start=start)
        for step in steps:
            if step == 3:
                m.probed(2, {"rank": 3.0})
                m.refreshed(2, {"": {**negatives, "minutes": float(len(steps))}})
            one_step(m, step, step / 2)
        m.close()
    lines = [line.split("  ")[:2] for line in capsys.readouterr().out.splitlines() if line.startswith("step 2  ")]
    assert lines == [["step 2", "probe"], ["step 2", "negatives"]]
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    for tag, value in (("probe/rank", 3), ("negatives/new", 1), ("negatives/minutes", 1)):
        assert [(event.step, event.value) for event in events.Scalars(tag)] == [(2, value)]
    assert [event.step for event in events.Scalars("loss/mlm")] == [1, 2, 3, 4]


def test_events_of_a_report_that_was_cut_short_are_completed(tmp_path: Path) -> None:
    for figures in ({"rank": 3.0}, {"rank": 3.0, "norm": 2.0}):
        with closing(monitor(tmp_path)) as m:
            m.probed(0, figures)
    assert (scalars(tmp_path, "probe/rank"), scalars(tmp_path, "probe/norm")) == ({0: 3.0}, {0: 2.0})


def test_slow_ranks_are_figures_and_lines(
    clock: SimpleNamespace, m: Monitor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert m.stragglers is not None
    m.stragglers.compare = Mock(return_value=({"ranks/forward_slowest": 3.0}, ["rank 1 on node2 is slow"]))  # type: ignore[method-assign]
    clock.now += 4.0
    with m.waiting():
        clock.now += 1.0
    m.engine.forward_clock.seconds = 2.0
    one_step(m, 1, 2.5)
    m.close()
    assert m.stragglers.compare.call_args.args == (1, 5.0, 2.0, 1.0)  # steps, seconds, forward, waited
    assert scalars(tmp_path, "ranks/forward_slowest") == {1: 3.0}
    assert capsys.readouterr().err == "step 1: rank 1 on node2 is slow\n"


def test_a_full_disk_ends_the_events_and_not_the_run(
    m: Monitor, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_step(m, 1, 2.5)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("deepsiam.trainer.training.run.monitor.SummaryWriter.add_scalar", Mock(side_effect=full))
        one_step(m, 2, 2.5)
        one_step(m, 3, 2.5)
        printed = capsys.readouterr()
    assert printed.err == f"{tmp_path}/tensorboard: no more events are written: No space left on device\n"
    assert [line.split("/")[0] for line in printed.out.splitlines()] == ["step 1", "step 2", "step 3"]
    m.close()
    m.restart(1)
    one_step(m, 2, 4.0)
    with monkeypatch.context() as patch:
        patch.setattr("deepsiam.trainer.training.run.monitor.SummaryWriter.close", Mock(side_effect=full))
        m.writer.flush()  # type: ignore[union-attr]
        with pytest.raises(ZeroDivisionError), closing(m):
            raise ZeroDivisionError
    with monkeypatch.context() as patch:
        patch.setattr("deepsiam.trainer.training.run.events.SummaryWriter", Mock(side_effect=full))
        m.restart(1)
    one_step(m, 2, 5.0)
    assert capsys.readouterr().err.count("no more events are written") == 2
    assert 4.0 in scalars(tmp_path, "loss/mlm").values()


def test_untimed_work_is_not_in_the_rates_and_waiting_for_data_is_a_share(
    clock: SimpleNamespace, m: Monitor, tmp_path: Path
) -> None:
    with m.untimed():
        clock.now += 100.0
    with m.waiting():
        clock.now += 3.0
    clock.now += 1.0
    one_step(m, 1, 2.5)
    clock.now += 2.0
    one_step(m, 2, 2.5)
    m.close()
    assert scalars(tmp_path, "tokens_per_second") == {1: 2 * 100 / 4, 2: 2 * 100 / 2}
    assert scalars(tmp_path, "data_wait_share") == {1: 0.75, 2: 0.0}


def test_duration() -> None:
    assert [duration(seconds) for seconds in (0, 61, 3661.4)] == ["0:00", "1:01", "1:01:01"]


needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="no wandb: pip install 'deepsiam[wandb]'")


def recipe(run: Path, **changes: object) -> FinetuneRecipe:
    return build(FinetuneRecipe, toy.finetune_values(run, Path("c"), init_from="p", **changes), "test")


@needs_wandb
def test_an_offline_run_is_kept_in_its_folder_and_resumed_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = set()
    for start, value in ((0, 0.0625), (5, 0.125)):
        with closing(monitor(tmp_path, start=start, of=recipe(tmp_path, wandb="siamese"))) as own:
            own.probed(start + 1, {"ndcg@10": value})
        ids.add((tmp_path / WANDB_ID).read_text())
    assert len(ids) == 1
    kept = [file.read_bytes() for file in sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))]
    assert len(kept) == 2
    for content, value in zip(kept, (b"0.0625", b"0.125"), strict=True):
        for part in (*(each.encode() for each in ids), b"siamese", b"probe/ndcg@10", value):
            assert part in content
    assert scalars(tmp_path, "probe/ndcg@10") == {1: 0.0625, 6: 0.125}  # TensorBoard has them, too


@needs_wandb
def test_other_ranks_and_recipes_without_the_key_start_nothing(tmp_path: Path) -> None:
    for rank, changes in ((1, {"wandb": "siamese"}), (0, {})):
        with closing(monitor(tmp_path, rank, of=recipe(tmp_path, **changes))) as own:
            assert own.wandb is None
    assert not (tmp_path / "wandb").exists()


@needs_wandb
def test_where_it_cannot_start_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setattr(wandb, "init", Mock(side_effect=wandb.errors.CommError("no network")))
    with pytest.raises(InputError, match="wandb: no network; with WANDB_MODE=offline"):
        monitor(tmp_path, of=recipe(tmp_path, wandb="siamese"))


def test_the_key_is_no_part_of_a_recipe_that_does_not_use_it(tmp_path: Path) -> None:
    assert "wandb" not in recipe(tmp_path).model_dump()
    assert recipe(tmp_path, wandb="siamese").model_dump()["wandb"] == "siamese"
    with pytest.raises(InputError, match=re.escape("wandb")):
        recipe(tmp_path, wandb="")


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_a_resumed_run_is_read_after_the_first_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The clock goes back before the second start, stands still, or goes on."""

    def write(steps: range, value: float) -> None:
        with open_events(tmp_path, steps.start) as events:
            for step in steps:
                events.add_scalar("loss", value, step)

    began = time.time()
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began)
    write(range(1, 9), 1.0)
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began + seconds)
    for start in (5, 7):
        write(range(start, 11), float(start))
    read = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload().Scalars("loss")
    assert [event.step for event in read] == [*range(1, 11)]
    assert [event.value for event in read] == [1.0] * 4 + [5.0] * 2 + [7.0] * 4
