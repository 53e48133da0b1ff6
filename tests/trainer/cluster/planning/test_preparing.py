"""Preparing data on many machines: against the hours in docs/many_machines.md, and against hand-computed numbers."""

import re

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.planning.preparing import MONTH, REDDIT, SOURCES, PlannedSource, Work, prepare, with_rates
from tests.toy import ROOT

PAGE = (ROOT / "docs" / "many_machines.md").read_text()


def hours(cores: int) -> list[float]:
    """The page's hours for Wikipedia, BookCorpusOpen and a month of Reddit."""
    (row,) = re.findall(rf"^\| {cores} cores?: [^|]*\| (.*) \|$", PAGE, re.MULTILINE)
    return [float(cell.removesuffix(" hours")) for cell in row.split(" | ")]


@pytest.mark.parametrize("cores", [1, 16])
def test_one_machine_takes_the_hours_of_the_page(cores: int) -> None:
    wikipedia, reddit = (prepare(SOURCES[name], 1, cores, 1e12, 1e12).hours for name in ("wikipedia", "reddit"))
    # for one core, the page assumes that reading and working alternate; it rounds to a tenth of an hour
    assert wikipedia == pytest.approx(hours(cores)[0], abs=0.05)
    assert reddit / REDDIT == pytest.approx(hours(cores)[2], abs=0.05)


@pytest.mark.parametrize("rate", ["finding the blocks of bzip2 120", "cutting 160", "reading 4.9", "writing 3.1"])
def test_the_rates_are_those_of_the_page(rate: str) -> None:
    assert rate in " ".join(PAGE.split())
    name, number = rate.split()[0], float(rate.split()[-1])
    assert SOURCES["wikipedia"].works[name].rate == number * 1e6


def test_the_size_of_reddit_is_twelve_months_of_the_page() -> None:
    assert "140 M lines" in PAGE
    assert pytest.approx(1.7e9 / 140e6) == REDDIT
    assert MONTH == 140e6
    (said,) = re.findall(r"twelve such months: (\d+) hours on 16 cores", " ".join(PAGE.split()))
    assert round(prepare(SOURCES["reddit"], 1, 16, 1e12, 1e12).hours) == int(said)


TOY = PlannedSource(
    "toy",
    1000.0,
    {"cutting": Work(3600, "bytes", 1.0)},
    {"reading": Work(36000, "bytes", 1.0)},
    {"writing": Work(72000, "bytes", 1.0)},
    Work(7200, "bytes", 1.0),
    0.0,
    0.0,
)


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        # reading: (1 + 10) / 4 h; writing: 20 / 4 h
        (1, (2.75, 5.0, 0.0, "the cores that write")),
        # (1 + 5) / 4; 20 / 2 / 4; 2 / 4
        (2, (1.5, 2.5, 0.5, "the cores that write")),
        # one process reads all of it on every machine
        (100, (1.0, 0.05, 0.5, "the process that reads")),
    ],
)
def test_hours_by_hand(machines: int, expected: tuple[float, float, float, str]) -> None:
    plan = prepare(TOY, machines, 4, 1e9, 1e9)
    assert (plan.reading, plan.writing, plan.merging) == pytest.approx(expected[:3])
    assert plan.bottleneck == expected[3]


def test_a_slow_disk_or_storage_is_the_bottleneck() -> None:
    assert prepare(TOY, 1, 4, 1000 / 360_000, 1e9).bottleneck == "a machine's disk or network"
    # a thousand bytes per machine at one byte per second, against one hour of cutting
    assert prepare(TOY, 3, 1000, 1e9, 1.0).bottleneck == "the process that reads"
    assert prepare(TOY, 4, 1000, 1e9, 1.0).bottleneck == "the shared storage"


def test_rates_are_replaced_by_name() -> None:
    faster = with_rates("wikipedia", {"reading": 49e6, "merging": 1e9})
    assert faster.works["reading"].seconds == SOURCES["wikipedia"].works["reading"].seconds / 10
    assert faster.merge.rate == 1e9
    assert faster.works["cutting"] == SOURCES["wikipedia"].works["cutting"]
    with pytest.raises(InputError, match="--rate baking: wikipedia has no such rate; it has finding, cutting"):
        with_rates("wikipedia", {"baking": 1.0})
