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
from deepsiam.trainer import index, search
from tests.trainer.runs import write_run


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays")
    lengths = {"max_query_tokens": 8, "max_document_tokens": 16}
    write_run(folder / "run", toy_collection / "tokenizer.json", name="siamese", **lengths)
    index.main([str(folder / "run"), f"--collection={toy_collection}", f"--out={folder / 'dense'}"])
    index.main(["bm25", f"--collection={toy_collection}", f"--out={folder / 'bm25'}"])
    return folder


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


def change(name: str, changed: Callable[[np.ndarray], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        array = np.load(folder / name)
        result = changed(array)
        np.save(folder / name, array if result is None else result)

    return apply


@pytest.mark.parametrize(
    ("kind", "damage", "words"),
    [
        (
            "dense",
            change("rows.npy", lambda rows: rows.__setitem__(5, 1 << 29)),
            "rows.npy: not the numbers of 120 texts",
        ),
        ("dense", change("rows.npy", lambda rows: rows.__setitem__(5, -3)), "rows.npy: not the numbers of 120 texts"),
        ("dense", change("rows.npy", lambda rows: rows[:-1]), "its number of documents"),
        ("dense", change("blocks/000000.npy", lambda block: block[:-1]), "its number of vectors"),
        ("dense", change("blocks/000000.npy", lambda block: block[:, :-1].copy()), "its vectors have 31 numbers"),
        ("dense", change("blocks/000000.npy", lambda block: block.astype(np.float64)), "its size, shape or dtype"),
        ("bm25", change("bm25/indices.csc.index.npy", lambda rows: rows.__setitem__(0, 1 << 30)), "names documents"),
        (
            "bm25",
            change("bm25/indptr.csc.index.npy", lambda ends: ends.__setitem__(1, 1 << 40)),
            "do not belong together",
        ),
        ("bm25", change("bm25/indptr.csc.index.npy", lambda ends: ends[:2].copy()), "do not belong together"),
    ],
    ids=range(9),
)
def test_damage_within_an_array_is_named(
    made: Path,
    tmp_path: Path,
    kind: str,
    damage: Callable[[Path], None],
    words: str,
    refused: Callable[..., str],
) -> None:
    shutil.copytree(made / kind, tmp_path / "index")
    damage(tmp_path / "index")
    assert words in refused(search.main, tmp_path / "index", "abc")
    assert refused(search.main, tmp_path / "index", "abc", "--verify")


def test_verify_finds_what_opening_cannot(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    shutil.copytree(made / "dense", tmp_path / "index")
    search.main([str(tmp_path / "index"), "--verify"])  # asks for no query
    assert capsys.readouterr().out == f"{tmp_path / 'index'}: its files are those of its manifest\n"
    block = tmp_path / "index" / "blocks" / "000000.npy"
    content = bytearray(block.read_bytes())
    content[-3] ^= 1
    block.write_bytes(content)
    search.main([str(tmp_path / "index"), "abc"])
    line = refused(search.main, tmp_path / "index", "abc", "--verify")
    assert "damaged (the SHA-256 of blocks/000000.npy is not the recorded one)" in line


def test_files_outside_the_folder_are_not_opened(made: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    shutil.copytree(made / "dense", tmp_path / "index")
    manifest = tmp_path / "index" / "manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**values, "blocks": ["../../dense/blocks/000000.npy"]}))
    assert refused(search.main, tmp_path / "index", "abc")
