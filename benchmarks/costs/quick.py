"""What moved: the costs of a few pieces of the project, compared with the committed numbers.

    make bench-quick                            (or OMP_NUM_THREADS=1 python -m benchmarks.costs.quick; 3 minutes)
    OMP_NUM_THREADS=1 python -m benchmarks.costs.quick --write      measure on a quiet machine, replace the numbers

A piece's cost is its CPU time in one thread, in units of a calibration (benchmarks.common.calibration) that is
measured right before and after it, so a committed cost is comparable on another day and, roughly, on another machine.
The pieces take turns, and each gets a median and a range over the rounds. A piece has moved if its range and the
committed range do not overlap, and the medians differ by more than 15 %. The exit code is 0 whatever has moved.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from benchmarks.common import machine
from benchmarks.common.calibration import CALIBRATIONS, cpu_seconds, in_calibrations
from benchmarks.common.machine import use_one_thread
from benchmarks.common.side_by_side import alternate, spread, write
from benchmarks.costs.quick_pieces import FULL, Piece, PieceSizes, pieces
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import read_bytes

COMMITTED = Path(__file__).parents[1] / "results" / "quick.json"
MOVED = 1.15  # the smallest ratio of two medians, the larger one above
KINDS = ("cpu", "instructions", "versions", "OMP_NUM_THREADS")  # what changes the numbers, apart from this code


class Spread(BaseModel):
    """A piece's cost in calibrations over the rounds."""

    model_config = ConfigDict(allow_inf_nan=False)

    min: PositiveFloat
    median: PositiveFloat
    max: PositiveFloat

    def __str__(self) -> str:
        """The median, and the range."""
        return f"{self.median:.3g} ({self.min:.3g} to {self.max:.3g})"


class Results(BaseModel):
    """The costs of the pieces, by name, and the machine that they were measured on."""

    machine: dict[str, Any]
    rounds: int
    pieces: dict[str, Spread]


def measure(prepared: Mapping[str, Piece], rounds: int) -> Results:
    """Measure the pieces in turn, after each has run once."""
    for piece in prepared.values():
        cpu_seconds(piece.work)
    costs = {name: partial(in_calibrations, work, CALIBRATIONS[kind]) for name, (work, kind) in prepared.items()}
    values = alternate(costs, rounds)
    described = machine.describe() | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set")}
    numbers = {name: Spread(**spread(costs)) for name, costs in values.items()}
    return Results(machine=described, rounds=rounds, pieces=numbers)


def read(path: Path) -> Results | None:
    """Read committed results; None where there are none. Raise InputError where they are damaged."""
    if not path.exists():
        return None
    try:
        return Results.model_validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        remedy = "restore it (git checkout), or measure it again with --write"
        raise InputError(f"{path}: damaged: {where}: {first['msg']}: {remedy}") from None


def verdict(now: Spread, then: Spread) -> str:
    """Describe whether a cost moved beyond its noise, and by what factor."""
    ratio = now.median / then.median
    apart = now.min > then.max or now.max < then.min
    if not apart or 1 / MOVED <= ratio <= MOVED:
        return "as before"
    return f"slower by {ratio:.2f}" if ratio > 1 else f"faster by {1 / ratio:.2f}"


def other_kinds(now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each way in which two machines differ."""
    for key in KINDS:
        if now.get(key) != then.get(key):
            yield f"the committed numbers are of another kind: {key}: {then.get(key)} then, {now.get(key)} now"


def table(now: Results, then: Results | None) -> Iterator[str]:
    """Yield the lines of a table of all pieces, and what the comparison means."""
    old = then.pieces if then else {}
    yield _row("in calibrations", "now", "then", "ratio", "")
    for name, cost in now.pieces.items():
        if name in old:
            yield _row(name, cost, old[name], f"{cost.median / old[name].median:.2f}", verdict(cost, old[name]))
        else:
            yield _row(name, cost, "", "", "new" if then else "")
    for name in (name for name in old if name not in now.pieces):
        yield _row(name, "", old[name], "", "not measured any more")
    yield from other_kinds(now.machine, then.machine) if then else ()


def _row(piece: object, now: object, then: object, ratio: str, words: str) -> str:
    return f"{piece!s:<24}{now!s:<25}{then!s:<25}{ratio:>6}  {words}".rstrip()


def main(argv: Sequence[str] | None = None, sizes: PieceSizes = FULL) -> None:
    """Run the command, with pieces of the given sizes."""
    parser = argparse.ArgumentParser(prog="benchmarks.costs.quick", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="(%(default)s)")
    parser.add_argument("--committed", type=Path, default=COMMITTED, metavar="FILE.json", help="(%(default)s)")
    parser.add_argument("--write", action="store_true", help="replace the committed numbers, compare nothing")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.costs.quick"):
        then = None if chosen.write else read(chosen.committed)
        use_one_thread()
        with tempfile.TemporaryDirectory() as folder:
            now = measure(pieces(Path(folder), sizes), chosen.rounds)
        print("\n".join(table(now, then)))
        if chosen.write:
            write(chosen.committed, now.model_dump())
        elif then is None:
            print(f"nothing to compare with: {chosen.committed} does not exist; --write makes it")


if __name__ == "__main__":
    main()
