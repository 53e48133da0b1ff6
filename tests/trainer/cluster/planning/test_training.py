"""The plan of a training: the recipe for other numbers of ranks, a step, and its text."""

from dataclasses import replace
from functools import partial

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


FITTING = [  # parameters, those that are trained, a GPU's bytes, ranks, examples, averaged; 80 % of the memory is used
    *((n, n, 80e9, 128, 1, False, stages) for n, stages in [(10**8, [1, 2, 3]), (16 * 10**9, [2, 3])]),
    *((n, n, 80e9, 128, 1, False, stages) for n, stages in [(5 * 10**10, [3]), (10**12, [])]),
    (10**9, 10**9, 4e9, 1, 1, False, []),
    (10**9, 10**7, 4e9, 1, 1, False, [1, 2]),  # frozen weights have their own bytes alone
    # 16 bytes per parameter split over 128 ranks, 0.1 GB of activations, and 2 bytes for each gathered parameter
    (10**9, 10**9, 2.9e9, 128, 1, False, [2, 3]),
    (11 * 10**8, 11 * 10**8, 2.9e9, 64, 1, False, []),
    (10**9, 10**9, 2.8e9, 128, 1, False, [2, 3]),
    (10**9, 10**9, 2.8e9, 128, 1, True, []),  # 4 bytes per parameter more, split over the ranks
    (10**8, 10**8, 80e9, 8, 1000, False, []),  # activations count
]


@pytest.mark.parametrize(("number", "trained", "memory", "ranks", "micro", "averaged", "stages"), FITTING)
def test_stages_fit_by_their_states(
    number: int, trained: int, memory: float, ranks: int, micro: int, averaged: bool, stages: list[int]
) -> None:
    work = replace(WORK, parameters=number, trained=(trained,))
    machines = replace(MACHINES, device=replace(DEVICES["h100"], memory=memory))
    assert fitting(work, Zero.from_config(CONFIG), machines, ranks, micro, averaged=averaged) == stages


def found(machines: Machines) -> dict[tuple[int, int], tuple[int, str]]:
    return {(one.batch, one.stage): (one.hosts, one.because) for one in limits(RECIPE, WORK, CONFIG, machines, 512)}


FREE = replace(MACHINES, between=Link(1e20, 0.0), within=Link(1e20, 0.0))
LIMITS = [
    # without costs more hosts pay as long as there are examples
    (replace(FREE, speed=speed(1e12, 0.0, 1e15)), (256, 1), (32, "batch.size")),
    (replace(FREE, speed=speed(1e12, 0.0, 1e15)), (256, 3), (32, "batch.size")),
    (replace(FREE, speed=speed(1e12, 0.0, 1e15)), (1024, 2), (128, "batch.size")),
    (replace(FREE, speed=speed(1e12, 0.0, 1e15)), (4096, 1), (512, "")),
    (replace(MACHINES, between=Link(1e10, 1e-4)), (256, 1), (1, "communication")),
    # operations take long to start
    (replace(FREE, speed=speed(4e14, 1e-5, 1e15)), (256, 1), (4, "small micro-batches")),
    (replace(MACHINES, gpus=7), (256, 1), (0, "batch.size")),  # these ranks do not divide the batch
]


@pytest.mark.parametrize(("machines", "of", "limit"), LIMITS)
def test_what_ends_what_pays(machines: Machines, of: tuple[int, int], limit: tuple[int, str]) -> None:
    assert found(machines)[of] == limit


def test_larger_batches_pay_on_more_hosts_and_higher_stages_on_fewer() -> None:
    ends = found(replace(MACHINES, between=Link(1e10, 1e-4)))
    assert ends[4096, 1][0] > ends[256, 1][0]
    assert ends[4096, 1][0] >= ends[4096, 2][0] >= ends[4096, 3][0]


def test_where_more_hosts_stop_paying() -> None:
    limits = [
        Limit(256, 1, 4, "communication"),
        Limit(256, 2, 0, "batch.size"),
        *(Limit(1024, n, 8, "") for n in (1, 2)),
    ]
    assert [*report.pays(limits)] == [
        "A host does at least 50% of what one alone does with ZeRO-1, up to so many hosts:",
        "batch.size             ZeRO-1                   ZeRO-2",
        "       256  4 (communication)  not even 1 (batch.size)",
        "     1,024          8 or more                8 or more",
    ]


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
    keys, layout = recipe(name), fit(recipe(name), ranks)
    check_layout(layout.recipe.data.lanes, layout.recipe.batch.micro_batches, ranks, layout.recipe.data.workers)
    assert layout.micro_batches * ranks * layout.recipe.batch.micro == layout.recipe.batch.size
    # applied to the recipe as overrides, the changes give this layout
    changed = recipe(name, *layout.changes)
    assert changed.model_dump(exclude={"ranks"}) == layout.recipe.model_dump(exclude={"ranks"})
    assert changed.batch.size * changed.steps >= keys.batch.size * keys.steps


LAYOUTS = [
    *(pytest.param("seed_base", ranks, (), True, id=f"{ranks}, as it is") for ranks in (1, 2, 4, 8)),  # docs/cluster.md
    ("seed_base", 64, ("batch.micro=4", "data.lanes=128"), True),  # those of the handbook
    ("ict_base", 64, ("batch.micro=64", "data.lanes=128"), False),  # its examples are compared: half of the negatives
    ("ict_base", 32, (), True),
    # more ranks than examples make larger and fewer steps
    ("seed_base", 1024, ("batch.size=1024", "batch.micro=1", "data.lanes=2048", "steps=250000"), False),
    ("seed_base ranks=4", 8, ("ranks=8",), True),
]


@pytest.mark.parametrize(("words", "ranks", "changes", "same_experiment"), LAYOUTS)
def test_a_recipe_changes_as_little_as_its_ranks_need(
    words: str, ranks: int, changes: tuple[str, ...], same_experiment: bool
) -> None:
    given = recipe(*words.split())
    layout = fit(given, ranks)
    assert (layout.changes, layout.same_experiment) == (changes, same_experiment)
    if not changes:
        assert layout.recipe == given
