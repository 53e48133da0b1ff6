"""Read the headers of a Parquet file's pages, to know how much memory decoding them takes.

The footer has sizes, too, but a hostile footer may lie; the decoder believes the headers. A header is a struct in
Thrift's compact protocol (https://github.com/apache/parquet-format). It is read by hand, as pyarrow cannot read one
without decoding its page.
"""

import os
from collections.abc import Iterator
from os import SEEK_CUR
from typing import Any, BinaryIO, NamedTuple

TYPE, INFLATED, COMPRESSED = (1,), (2,), (3,)  # fields of a header: the type of the page, and its bytes
VALUES = {0: (5, 1), 2: (7, 1), 3: (8, 1)}  # type of a page -> the field with its number of values, in a struct inside
DICTIONARY = 2  # the type of a page of distinct values, which are not rows
CUT_OFF = "a page is cut off"
NOT_A_HEADER = "no header of a page"
DEEPEST = 3  # structs in one another: the header, that of its type, its statistics
TRUE, FALSE, I32, I64, BYTES, STRUCT = 1, 2, 5, 6, 8, 12  # kinds of fields


class Pages(NamedTuple):
    """The pages of a column in a row group: bytes in the file, with headers, bytes inflated, and values."""

    size: int
    inflated: int
    values: int


def pages(file: BinaryIO, column: Any) -> Pages:
    """Add up the pages of a pyarrow ColumnChunkMetaData; raise ValueError if they are not where the footer says."""
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
    inflated = values = rows = 0
    file.seek(start)
    while file.tell() < start + column.total_compressed_size and rows < column.num_values:
        header = dict(_numbers(file))
        in_page = header.get(VALUES.get(header.get(TYPE, -1), ()), 0)
        if min(header.get(INFLATED, -1), header.get(COMPRESSED, -1), in_page) < 0:
            raise ValueError("a page without its sizes")
        file.seek(header[COMPRESSED], SEEK_CUR)
        inflated += header[INFLATED]
        values += in_page
        rows += in_page * (header.get(TYPE) != DICTIONARY)
    if file.tell() > os.fstat(file.fileno()).st_size:
        raise ValueError(CUT_OFF)
    return Pages(file.tell() - start, inflated, values)


def _numbers(file: BinaryIO, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each number of 32 bits in a struct and in those inside, after the path of its field, from the outside in.

    Anything that pyarrow might read as another number is refused, such as more bits than a number has.
    """
    number = 0
    while field := _byte(file):
        kind = field & 15
        number = number + (field >> 4) if field >> 4 else _varint(file, 15) >> 1
        if kind == I32:
            value = _varint(file, 32)
            yield (*path, number), value >> 1 ^ -(value & 1)
        elif kind == I64:
            _varint(file, 64)
        elif kind == BYTES:
            file.seek(_varint(file, 31), SEEK_CUR)
        elif kind == STRUCT and len(path) < DEEPEST:
            yield from _numbers(file, (*path, number))
        elif kind not in (TRUE, FALSE):
            raise ValueError(NOT_A_HEADER)


def _byte(file: BinaryIO) -> int:
    if byte := file.read(1):
        return byte[0]
    raise ValueError(CUT_OFF)


def _varint(file: BinaryIO, bits: int) -> int:
    value = shift = 0
    while (byte := _byte(file)) > 127 and shift < bits:
        value, shift = value | (byte & 127) << shift, shift + 7
    if (value := value | byte << shift) >> bits:
        raise ValueError(NOT_A_HEADER)
    return value
