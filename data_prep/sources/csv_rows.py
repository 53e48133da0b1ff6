"""The rows of CSV, from the lines of a file that may be compressed."""

import csv
from collections.abc import Iterable, Iterator
from typing import TypeVar

from deepsiam.data_prep.common.errors import InputError

Place = TypeVar("Place")


def csv_rows(lines: Iterable[tuple[Place, str]], limit: int) -> Iterator[tuple[Place, list[str]]]:
    """Yield the rows, each with the place of the line that it begins on, without those that are a blank line.

    `lines` are all lines, without their ends, each with its place, which a message begins with; a cell has at most
    `limit` characters.
    """
    began: list[Place] = []  # of the row that is being read

    def read() -> Iterator[str]:
        for place, line in lines:
            began.append(place)
            yield line + "\n"

    csv.field_size_limit(limit)
    rows = csv.reader(read(), strict=True)
    while True:
        began.clear()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            read_to = f"read to {began[-1]}; does a quote of this row not end?"
            raise InputError(f"{began[0]}: not CSV ({error}), {read_to}") from None
        if len(row) > 1 or "".join(row).strip():
            yield began[0], row
