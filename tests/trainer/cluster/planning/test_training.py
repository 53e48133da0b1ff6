"""The plan of a training: the recipe for other numbers of ranks, a step, and its text."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from deepsiam.trainer.cluster.planning import report
from deepsiam.trainer.cluster.planning.communication import Link, Zero, collectives, step_seconds
from deepsiam.trainer.cluster.planning.compute import Work
from deepsiam.trainer.cluster.planning.kernels import Kernel
from deepsiam.trainer.cluster.planning.roofline import BANDWIDTH, GRADIENT_BYTES, STATE_BYTES, Roofline
from deepsiam.trainer.cluster.planning.training import Limit, Machines, fit, fitting, limits, plan, plan_step
from deepsiam.trainer.training.data.loader import check_layout
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.hardware import DEVICES
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT

FILE = ROOT / "recipes" / "seed_base.yaml"
RECIPE = load(PretrainRecipe, FILE, ["batch.micro=16"])
CONFIG = ds_config.load("zero1_bf16")[1]
KERNELS = {Kernel("mm", 0, 400_000_000_000): 1, Kernel("add", 0, 0): 999}
WORK = Work(100_000_000, (60_000_000, 40_000_000), KERNELS, 1, 480.0, 1e8, 1e-4)


def speed(peak: float, start: float, bandwidth: float) -> Roofline:
    device = replace(DEVICES["h100"], peak=peak, memory_bandwidth=bandwidth / BANDWIDTH)
    return Roofline(device, products=1.0, launch=0.0, start=start)


MACHINES = Machines(
    gpus=8,
    device=DEVICES["h100"],
    speed=speed(4e14, 1e-6, 1e12),
    between=Link(1e11, 1e-5),
    within=Link(2e11, 1e-6),
    backend="nccl",
    overlap=None,
    disk=1e9,
)
planned = partial(plan, RECIPE, WORK, CONFIG)


def test_a_step_is_compute_and_the_communication_that_it_does_not_hide() -> None:
    layout = fit(RECIPE, 8)
    step = plan_step(layout, WORK, Zero.from_config(CONFIG), MACHINES)
    # two micro-batches of 16 examples, 1 ms each; DeepSpeed's passes over gradients and over a rank's eighth of states
    assert step.compute == pytest.approx(2 * 0.016 + (GRADIENT_BYTES + STATE_BYTES / 8) * 1e8 / 1e12)
    exchanged = step_seconds(collectives(WORK.trained, Zero.from_config(CONFIG), 2), MACHINES.network(8))
    assert step.communication == step.exposed == exchanged
    assert step.tokens == 256 * 480
    hidden = plan_step(layout, WORK, Zero.from_config(CONFIG), replace(MACHINES, overlap=0.75))
    assert hidden.exposed == pytest.approx(exchanged / 4)
    assert plan_step(layout, WORK, Zero.from_config(CONFIG, 3), MACHINES).exposed < exchanged * 10


def test_a_step_is_no_faster_than_its_shards_are_read() -> None:
    slow = plan_step(fit(RECIPE, 16), WORK, Zero.from_config(CONFIG), replace(MACHINES, disk=1e6))
    assert slow.seconds == slow.loading == pytest.approx(2.3 * 256 * 480 / 2 / 1e6)
    row = planned(replace(MACHINES, disk=1e6), 2)
    assert (row.step_seconds, row.read_share) == (slow.seconds, 1)


def test_a_row_is_consistent() -> None:
    row = planned(MACHINES, 2)
    assert (row.hosts, row.ranks, row.micro, row.micro_batches) == (2, 16, 16, 1)
    assert row.tokens_per_second == pytest.approx(256 * 480 / row.step_seconds)
    assert row.hours == pytest.approx(1e6 * row.step_seconds / 3600)
    assert row.gpu_hours == pytest.approx(16 * row.hours)
    assert row.read == pytest.approx(2.3 * row.tokens_per_second / 2)
    assert row.read_share == pytest.approx(row.read / 1e9)
    assert row.loaders == pytest.approx(16 * 1e-4 / row.step_seconds)


def of_size(parameters: int, trained: int | None = None) -> Work:
    return replace(WORK, parameters=parameters, trained=(parameters if trained is None else trained,))


def small(memory: float) -> Machines:
    return replace(MACHINES, device=replace(DEVICES["h100"], memory=memory))


FITTING = [  # 80 % of the memory can be used
    *(
        pytest.param(of_size(int(parameters)), MACHINES, 128, 1, stages, id=f"{parameters:g}")
        for parameters, stages in [(1e8, [1, 2, 3]), (1.6e10, [2, 3]), (5e10, [3]), (1e12, [])]
    ),
    pytest.param(of_size(10**9), small(4e9), 1, 1, [], id="all trained"),
    pytest.param(of_size(10**9, trained=10**7), small(4e9), 1, 1, [1, 2], id="frozen: their own bytes alone"),
    # 16 bytes per parameter split over 128 ranks, 0.1 GB of activations, and 2 bytes for each gathered parameter
    pytest.param(of_size(10**9), small(2.9e9), 128, 1, [2, 3], id="what stage 3 has gathered fits"),
    pytest.param(of_size(11 * 10**8), small(2.9e9), 64, 1, [], id="it does not"),
    pytest.param(WORK, MACHINES, 8, 1000, [], id="activations count"),
]


@pytest.mark.parametrize(("work", "machines", "ranks", "micro", "stages"), FITTING)
def test_stages_fit_by_their_states(work: Work, machines: Machines, ranks: int, micro: int, stages: list[int]) -> None:
    assert fitting(work, Zero.from_config(CONFIG), machines, ranks, micro) == stages


def test_an_average_of_the_weights_counts() -> None:
    asked = of_size(10**9), Zero.from_config(CONFIG), small(2.8e9), 128, 1
    assert 3 in fitting(*asked)
    assert 3 not in fitting(*asked, averaged=True)  # 4 bytes per parameter more, split over the ranks


def found(machines: Machines, most: int = 512, **changes: Any) -> dict[tuple[int, int], tuple[int, str]]:
    work = replace(WORK, **changes)
    return {(one.batch, one.stage): (one.hosts, one.because) for one in limits(RECIPE, work, CONFIG, machines, most)}


def test_without_costs_more_hosts_pay_as_long_as_there_are_examples() -> None:
    free = replace(MACHINES, speed=speed(1e12, 0.0, 1e15), between=Link(1e20, 0.0), within=Link(1e20, 0.0))
    ends = found(free)
    assert ends[256, 1] == ends[256, 3] == (32, "batch.size")
    assert ends[1024, 2] == (128, "batch.size")
    assert ends[4096, 1] == (512, "")


def test_slow_links_end_what_pays() -> None:
    ends = found(replace(MACHINES, between=Link(1e10, 1e-4)))
    assert ends[256, 1] == (1, "communication")
    assert ends[4096, 1][0] > ends[256, 1][0]
    assert ends[4096, 1][0] >= ends[4096, 2][0] >= ends[4096, 3][0]


def test_operations_that_take_long_to_start_end_what_pays() -> None:
    slow = replace(MACHINES, speed=speed(4e14, 1e-5, 1e15), between=Link(1e20, 0.0), within=Link(1e20, 0.0))
    assert found(slow)[256, 1][1] == "small micro-batches"


def test_ranks_that_do_not_divide_the_batch_have_no_plan() -> None:
    assert found(replace(MACHINES, gpus=7))[256, 1] == (0, "batch.size")


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    assert report.table(["a", "long"], [["1,000", "x"], ["2", "y"]]) == ["    a  long", "1,000     x", "    2     y"]


def test_where_more_hosts_stop_paying() -> None:
    limits = [
        Limit(256, 1, 4, "communication"),
        Limit(256, 2, 0, "batch.size"),
        Limit(1024, 1, 8, ""),
        Limit(1024, 2, 8, ""),
    ]
    title, heads, first, second = report.pays(limits)
    assert "at least 50% of what one alone does" in title
    assert heads.split() == ["batch.size", "ZeRO-1", "ZeRO-2"]
    assert first.split("  ")[-2:] == ["4 (communication)", "not even 1 (batch.size)"]
    assert second.split() == ["1,024", "8", "or", "more", "8", "or", "more"]


def test_changes_name_the_overrides_and_another_experiment() -> None:
    row = planned(MACHINES, 1)
    assert list(report.changes(row)) == []
    changed = replace(row, ranks=1024, changes=("batch.size=1024", "steps=5"), same_experiment=False)
    (line,) = report.changes(changed)
    assert line == ("1,024 ranks cannot share the recipe: planned with batch.size=1024 steps=5 (another experiment)")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0012, "1.2 ms"), (1.4, "1,400 ms"), (2.0, "2 s"), (100.0, "1.67 min"), (86400.0, "24 h")]
)
def test_times_have_a_unit_that_suits_them(seconds: float, shown: str) -> None:
    row = replace(planned(MACHINES, 1), step_seconds=seconds)
    assert report.COLUMNS["step"](row) == shown


def recipe(name: str, *changes: str) -> PretrainRecipe:
    return load(PretrainRecipe, ROOT / "recipes" / f"{name}.yaml", changes)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 12, 48, 64, 96, 256, 1000, 1024])
@pytest.mark.parametrize("name", ["seed_base", "clm_base", "ict_base"])
def test_any_number_of_ranks_can_share_what_is_planned(name: str, ranks: int) -> None:
    keys = recipe(name)
    layout = fit(keys, ranks)
    check_layout(layout.recipe.data.lanes, layout.recipe.batch.micro_batches, ranks, layout.recipe.data.workers)
    assert layout.micro_batches * ranks * layout.recipe.batch.micro == layout.recipe.batch.size
    # applied to the recipe as overrides, the changes give this layout
    changed = recipe(name, *layout.changes)
    assert (changed.batch, changed.data, changed.steps) == (
        layout.recipe.batch,
        layout.recipe.data,
        layout.recipe.steps,
    )
    assert changed.batch.size * changed.steps >= keys.batch.size * keys.steps


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])  # docs/cluster.md
def test_a_recipe_that_allows_the_ranks_stays_as_it_is(ranks: int) -> None:
    layout = fit(recipe("seed_base"), ranks)
    assert layout.changes == ()
    assert layout.recipe == recipe("seed_base")
    assert layout.same_experiment


def test_the_changes_for_64_ranks_are_those_of_the_handbook() -> None:
    layout = fit(recipe("seed_base"), 64)
    assert layout.changes == ("batch.micro=4", "data.lanes=128")
    assert layout.same_experiment


def test_a_smaller_micro_batch_is_another_experiment_where_its_examples_are_compared() -> None:
    layout = fit(recipe("ict_base"), 64)
    assert layout.changes == ("batch.micro=64", "data.lanes=128")  # half of the negatives
    assert not layout.same_experiment
    assert fit(recipe("ict_base"), 32).same_experiment


def test_more_ranks_than_examples_make_larger_and_fewer_steps() -> None:
    layout = fit(recipe("seed_base"), 1024)
    assert set(layout.changes) == {"batch.size=1024", "batch.micro=1", "data.lanes=2048", "steps=250000"}
    assert not layout.same_experiment


def test_the_ranks_that_a_recipe_expects_become_those_of_the_plan() -> None:
    assert fit(recipe("seed_base", "ranks=4"), 8).changes == ("ranks=8",)
