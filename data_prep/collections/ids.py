"""The ids of texts: from a number to its id and back, memory-mapped, without reading them all."""

import hashlib
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Rows, map_array
from deepsiam.data_prep.common.errors import InputError

HASH = np.dtype("<u8")
HALVES = "surrogatepass"  # lone surrogates may be hashed; the writer of the text refuses them, naming the line


def hash_of(name: str) -> int:
    """Return the first 64 bits of the BLAKE2b hash of an id."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors=HALVES), digest_size=8).digest(), "little")


def content_id(text: str) -> str:
    """Return the id of a text whose format gives none: equal texts have equal ids."""
    return hashlib.blake2b(text.encode(errors=HALVES), digest_size=12).hexdigest()


def is_content_id(name: str) -> bool:
    """Return whether an id has the form of `content_id`."""
    return re.fullmatch("[0-9a-f]{24}", name) is not None


def utf8_of(text: str) -> np.ndarray:
    """Return the bytes of a text, uint8."""
    return np.frombuffer(text.encode(), np.uint8)


def zeros_hint(name: str, ids: Container[str]) -> str:
    """Return a remark if the number that ends an unknown id differs from a known id's only by leading zeros."""
    digits = name[len(name.rstrip("0123456789")) :]
    if not digits:
        return ""
    padded = (name.removesuffix(digits) + "0" * zeros + digits.lstrip("0") for zeros in range(12))
    alike = next((candidate for candidate in padded if candidate in ids), None)
    return f"; {alike!r} is: write the zeros alike in all files" if alike else ""


class Ids(Sequence[str]):
    """The id of every number; `find` looks numbers up by a binary search over sorted hashes."""

    def __init__(self, names: Rows, hashes: np.ndarray, order: np.ndarray) -> None:
        """Take the ids as rows of UTF-8, their sorted hashes uint64 [N], and the number of each hash's id int64 [N]."""
        self.names, self.hashes, self.order = names, hashes, order

    @classmethod
    def map(cls, folder: Path) -> "Ids":
        """Memory-map what `write_index` wrote; raise InputError where it is damaged."""
        names = Rows.map(folder / "ids.npy", folder / "id_ends.npy", [np.uint8])
        hashes, order = map_array(folder / "id_hashes.npy", [HASH]), map_array(folder / "id_order.npy", [np.int64])
        if not len(names) == len(hashes) == len(order):
            raise InputError(f"{folder}: damaged (its ids and their index differ in length); make the collection again")
        return cls(names, hashes, order)

    @classmethod
    def of(cls, names: Sequence[str]) -> "Ids":
        """Hold ids in memory."""
        hashes = np.fromiter(map(hash_of, names), HASH, len(names))
        order = np.argsort(hashes, kind="stable")
        return cls(Rows.of([utf8_of(name) for name in names], np.uint8), hashes[order], order)

    def __len__(self) -> int:
        """The number of ids."""
        return len(self.names)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]  # slices are not needed
        """Return the id of a number; raise IndexError if the number has none."""
        return self.names[i].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        """Every id in order."""
        return (self[i] for i in range(len(self)))

    def __contains__(self, name: object) -> bool:
        """Whether an id is known."""
        return isinstance(name, str) and self.number(name) >= 0

    def number(self, name: str) -> int:
        """Return the number of an id, -1 where it is unknown."""
        return int(self.find([name])[0])

    def hashes_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the hashes of ids by their numbers, uint64."""
        hashes = np.empty(len(self), HASH)  # in the order of the numbers
        hashes[self.order] = self.hashes
        return hashes[numbers]

    def find(self, names: Sequence[str]) -> np.ndarray:
        """Return the numbers of ids: int64 [len(names)], -1 for an unknown one."""
        hashes = np.fromiter(map(hash_of, names), HASH, len(names))
        at = np.searchsorted(self.hashes, hashes)
        return np.fromiter(
            (self._among_equals(name, key, i) for name, key, i in zip(names, hashes, at, strict=True)),
            np.int64,
            len(at),
        )

    def _among_equals(self, name: str, key: np.uint64, at: int) -> int:
        while at < len(self.hashes) and self.hashes[at] == key:
            number = int(self.order[at])
            if 0 <= number < len(self) and self[number] == name:
                return number
            at += 1
        return -1


def write_index(folder: Path, hashes: np.ndarray) -> None:
    """Write the index of ids by their hashes uint64 [N], in the order of their numbers."""
    order = np.argsort(hashes, kind="stable")
    np.save(folder / "id_hashes.npy", hashes[order].astype(HASH))
    np.save(folder / "id_order.npy", order.astype(np.int64))


def repeated(ids: Ids) -> dict[int, int]:
    """Return the number of each id that is equal to an earlier one, ascending, with the first number of that id."""
    numbers: dict[str, int] = {}
    repeats = {}
    collisions = np.unique(ids.hashes[1:][ids.hashes[1:] == ids.hashes[:-1]])
    # ids with the same hash are in the order of their numbers
    for number in ids.order[np.isin(ids.hashes, collisions)].tolist():
        if (earlier_number := numbers.setdefault(ids[number], number)) != number:
            repeats[number] = earlier_number
    return dict(sorted(repeats.items()))
