"""Arrays of an index that are damaged or hostile: refused by their kind, size and range, before memory is taken."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import search
from deepsiam.trainer.ranking.indexes import centroids, residual
from deepsiam.trainer.ranking.indexes.registry import open_index
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import queries


def header(shape: str, descr: str = "<i8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        header("(750000000,)"),
        header("(2,)") + bytes(24),  # more than it says
        header("(-2,)") + bytes(16),
        header(f"({10**30},)"),
        header("(2,)", "|O") + bytes(16),
        header("(2,)", "<f8") + bytes(16),
        header("(1, 2)") + bytes(16),
        header("(" * 60 + "2," + ")" * 60),
        header("{'descr': ("),
        b"PK\x03\x04" + bytes(40),
        saved(np.array([{"a": 1}], object)),
    ],
    ids=range(13),
)
def test_a_file_that_is_no_such_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npy: .*; do this") as caught:
        map_array(tmp_path / "a.npy", [np.int64], remedy="do this")
    assert len(str(caught.value)) < 700 + len(str(tmp_path))


def test_a_pipe_is_refused_and_sound_arrays_are_mapped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(InputError, match="not a plain file"):
        map_array(tmp_path / "pipe.npy", [np.int64])
    for array in (np.arange(5), np.arange(0), np.arange(6).reshape(2, 3)):
        np.save(tmp_path / "a.npy", array)
        read = map_array(tmp_path / "a.npy", [np.int32, np.int64], array.ndim)
        assert read.tolist() == array.tolist()


Change = Callable[[np.ndarray], np.ndarray]


def put(place: object, value: float) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value  # type: ignore[index]
        return array

    return change


def shorter(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def narrower(array: np.ndarray) -> np.ndarray:
    return array[:, :-1]


def nudged(array: np.ndarray) -> np.ndarray:
    array.ravel()[-1:] = np.nextafter(array.ravel()[-1:], np.inf)
    return array


BLOCK, EVERY = "blocks/000001.npy", "blocks/*.npy"
BM25, NEIGHBOURS = "bm25/{}.csc.index.npy", "centroids/000001.npy"
TEXTS, ENDS = "rows.npy: not the numbers of 90 texts", "where the postings of its terms end"
RECORDED = "the SHA-256 of {} is not the recorded one"
ROWS: list[tuple[str, str, Change | None, str]] = [  # the index, its files, how they change, what is said
    ("dense", "rows.npy", put(5, 1 << 29), TEXTS),
    ("dense", "rows.npy", put(5, -3), TEXTS),
    ("dense", "rows.npy", shorter, "its number of documents"),
    ("dense", BLOCK, shorter, "its number of vectors"),
    ("dense", BLOCK, narrower, "its blocks differ in width"),
    ("dense", EVERY, narrower, "its vectors have 31 numbers"),
    ("dense", BLOCK, lambda block: block.astype(np.float64), "its size, shape or dtype"),
    ("dense", BLOCK, put((3, 0), np.nan), "a score is not a number"),
    ("dense", BLOCK, put((3, 0), np.inf), "a score is not a number"),
    ("bm25", BM25.format("indices"), put(0, 1 << 30), "names documents"),
    ("bm25", BM25.format("indptr"), put(1, 1 << 30), "do not belong together"),
    ("bm25", BM25.format("indptr"), lambda ends: ends[:2], "do not belong together"),
    ("int8", "codes/000001.npy", shorter, "its codes are not those of its vectors"),
    ("int8", "codes/000001.npy", narrower, "its codes are not those of its vectors"),
    ("int8", "codes/000001.npy", lambda codes: codes.astype(np.int16), "000001.npy: damaged"),
    ("int8", "ranges.npy", nudged, RECORDED.format("ranges.npy")),
    ("int8", "ranges.npy", None, RECORDED.format("ranges.npy")),
    ("binary", "codes/000001.npy", narrower, "its codes are not those of its vectors"),
    ("multi_vector", "ends/000001.npy", lambda ends: np.arange(len(ends)), "its number of vectors"),
    ("multi_vector", "ends/000001.npy", lambda ends: ends[::-1], "ends: they are not in order"),
    ("multi_vector", "centroids/centroids.npy", narrower, "belongs to another index; remove it and make it again"),
    ("multi_vector", NEIGHBOURS, shorter, "belongs to another index; remove it and make it again"),
    ("multi_vector", NEIGHBOURS, put((1, 0), 20), "it names texts that the block does not have"),
    ("multi_vector", NEIGHBOURS, put((0, 0), -1), "it names texts that the block does not have"),
    ("multi_vector", NEIGHBOURS, None, "no such file; trainer.index --approximate centroids makes it"),
    ("residual2", BLOCK, put(np.s_[:, 3], 255), "blocks: a vector's centroid is none of the codec's"),
    ("residual2", EVERY, narrower, "its blocks were written with another codec"),
    *(
        ("residual2", name, change, RECORDED.format(name))
        for name in residual.FILES
        for change in (nudged, shorter, None)
    ),
    ("sparse", "terms/000001.npy", put((0, 0), -1), "its terms are not in order"),
    ("sparse", "terms/000001.npy", put((0, -1), 1 << 40), "its terms are not in order, or not of the model's"),
    ("sparse", "terms/000001.npy", put((1, 0), 1 << 40), ENDS),
    ("sparse", "terms/000001.npy", put((1, -1), 3), ENDS),
    ("sparse", "terms/000001.npy", narrower, ENDS),
    ("sparse", "terms/000001.npy", shorter, "not in order"),
    ("sparse", "texts/000001.npy", put(0, 60_000), "how many terms each text has"),
    ("sparse", "texts/000001.npy", shorter, ENDS),
    ("sparse", "counts/000001.npy", put(0, -1), "how many terms each text has"),
    ("sparse", "counts/000001.npy", shorter, "how many terms each text has"),
    ("sparse", BLOCK, shorter, "its number of weights"),
    ("sparse", BLOCK, lambda weights: weights.astype(np.float64), "its size, shape or dtype"),
]


def use(folder: Path) -> None:
    """Open an index, search it, and ask for its centroids."""
    index = open_index(folder)
    index.search_share(queries(index.collection), 5)
    index.require(centroids.NAME)


@pytest.mark.parametrize(("name", "files", "change", "words"), ROWS, ids=range(len(ROWS)))
def test_damage_is_told(kinds: Kinds, tmp_path: Path, name: str, files: str, change: Change | None, words: str) -> None:
    folder = shutil.copytree(kinds.made[name].folder.directory, tmp_path / "index")
    for file in sorted(folder.glob(files)):
        damaged = None if change is None else np.ascontiguousarray(change(np.load(file)))
        file.unlink()
        if damaged is not None:
            np.save(file, damaged)
    with pytest.raises(InputError) as refused:
        use(folder)
    assert words in str(refused.value)


def test_verify_finds_more_and_files_outside_the_folder_are_not_opened(
    kinds: Kinds, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    folder = shutil.copytree(kinds.made["dense"].folder.directory, tmp_path / "index")
    search.main([str(folder), "--verify"])  # asks for no query
    assert capsys.readouterr().out == f"{folder}: its files are those of its manifest\n"
    content = bytearray((folder / BLOCK).read_bytes())
    content[-3] ^= 1
    (folder / BLOCK).write_bytes(content)
    search.main([str(folder), "abc"])
    assert f"damaged ({RECORDED.format(BLOCK)})" in refused(search.main, folder, "abc", "--verify")
    manifest = json.loads((folder / "manifest.json").read_text())
    outside = {**manifest, "blocks": ["../../dense/blocks/000000.npy"]}
    (folder / "manifest.json").write_text(json.dumps(outside))
    assert refused(search.main, folder, "abc")
