"""Ids: numbers to names and back, for any names; names with equal hashes are told apart."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.collections import ids as ids_module
from deepsiam.data_prep.collections.format import Text, Where
from deepsiam.data_prep.collections.ids import Ids, content_id, hash_of, repeated, zeros_hint
from deepsiam.data_prep.collections.write_texts import write_texts

HERE = Where(Path("file"), 1)
NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=30)


def written(folder: Path, names: list[str]) -> Ids:
    write_texts(folder, lambda: [Text(name, ["x"], HERE) for name in names], [], repeats=False)
    return Ids.map(folder)


@given(NAMES, NAMES)
def test_every_id_is_found_and_no_other(names: list[str], others: list[str]) -> None:
    names = list(dict.fromkeys(names))
    with TemporaryDirectory() as folder:
        ids = written(Path(folder) / "texts", names)
        assert list(ids) == names
        for number in (-1, len(names)):
            with pytest.raises(IndexError):
                ids[number]
        assert ids.find(names).tolist() == list(range(len(names)))
        assert ids.find(others).tolist() == [names.index(name) if name in names else -1 for name in others]
        assert all((name in ids) == (name in names) for name in others)


def test_ids_with_the_same_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ids_module, __import__("deepsiam.data_prep.collections.write_texts", fromlist=["hash_of"])):
        monkeypatch.setattr(module, "hash_of", lambda name: len(name))
    ids = written(tmp_path / "texts", ["aa", "bb", "c", "dd"])
    assert ids.find(["dd", "bb", "aa", "c", "xx", "xxx"]).tolist() == [3, 1, 0, 2, -1, -1]
    assert repeated(ids) == {}


def test_a_repeated_id_is_found_behind_another_of_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["aa", "bb", "aa", "bb"]
    hashes = np.array([2, 2, 2, 2], np.uint64)
    monkeypatch.setattr("deepsiam.data_prep.collections.write_texts.repeated", lambda ids: {})
    written(tmp_path / "texts", names)
    ids_module.write_index(tmp_path / "texts", hashes)
    assert repeated(Ids.map(tmp_path / "texts")) == {2: 0, 3: 1}


def test_equal_texts_have_equal_ids_and_half_a_character_its_own() -> None:
    assert content_id("a") == content_id("a") != content_id("b")
    assert len({content_id(text) for text in ("\ud800", "\udc00", "")}) == 3
    assert hash_of("\ud800") != hash_of("\udc00")


@pytest.mark.parametrize(
    ("name", "alike"), [("01", "1"), ("D1", "D0001"), ("D01", "D0001"), ("d1", ""), ("D", ""), ("00", "0"), ("2", "")]
)
def test_an_unknown_id_may_differ_by_its_zeros(name: str, alike: str) -> None:
    hint = f"; {alike!r} is: write the zeros alike in all files" if alike else ""
    assert zeros_hint(name, {"1", "D0001", "D", "0"} - {name}) == hint
