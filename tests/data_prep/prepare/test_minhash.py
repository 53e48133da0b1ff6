import sys
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import minhash
from deepsiam.data_prep.prepare.minhash import PERMUTATIONS, RECALL, RECORD, bands, layout, surpassed

TOP = 2**64 - 1
records = st.lists(st.tuples(st.integers(0, 3) | st.just(TOP), st.integers(0, 5) | st.just(TOP)), max_size=30)


def to_drop(pairs: Iterable[tuple[int, int]]) -> list[int]:
    records = np.array(list(pairs), RECORD)
    return surpassed(records["band"], records["key"]).tolist()


def naive(pairs: list[tuple[int, int]]) -> list[int]:
    return sorted({key for band, key in pairs if any(b == band and k < key for b, k in pairs)})


def texts(number: int, words: int, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"w{word}" for word in rng.integers(0, 5000, words)] for _ in range(number)]


def similarity(a: list[str], b: list[str]) -> float:
    sets = [{tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def share_found(pairs: list[tuple[list[str], list[str]]], threshold: float) -> float:
    """Return the share of pairs that have a band in common."""
    common = [
        set(bands(" ".join(a), threshold).tolist()) & set(bands(" ".join(b), threshold).tolist()) for a, b in pairs
    ]
    return sum(map(bool, common)) / len(pairs)


@given(records)
def test_a_document_is_dropped_where_a_smaller_key_has_one_of_its_bands(pairs: list[tuple[int, int]]) -> None:
    assert to_drop(pairs) == naive(pairs)


@given(records, st.data())
def test_neither_order_nor_parts_nor_ranges_of_bands_change_what_is_dropped(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Documents are divided among machines, and all bands among ranges."""
    machine = {key: data.draw(st.integers(0, 2)) for _, key in pairs}
    dealt = [pair for part in range(3) for pair in data.draw(st.permutations(pairs)) if machine[pair[1]] == part]
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, 4), max_size=3))), TOP + 1]
    ranges = [[pair for pair in dealt if low <= pair[0] < high] for low, high in zip(edges, edges[1:], strict=False)]
    assert sorted(set().union(*map(to_drop, ranges))) == to_drop(pairs)


def test_one_document_of_those_with_a_band_in_common_stays() -> None:
    assert to_drop([(7, 30), (7, 10), (7, 20), (8, 40)]) == [20, 30]
    assert to_drop([(1, 10), (1, 20), (2, 20), (2, 30)]) == [20, 30]  # a chain
    assert to_drop([(7, 10), (7, 10), (8, 10)]) == []  # the same content
    assert surpassed(np.empty(0, np.uint64), np.empty(0, np.uint64)).dtype == np.uint64


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0])
def test_the_layout_finds_pairs_at_the_threshold(threshold: float) -> None:
    count, rows = layout(threshold)
    assert 1 <= count * rows <= PERMUTATIONS
    assert 1 - (1 - threshold**rows) ** count >= RECALL
    # pairs half as similar are rarely found, if a band has enough rows
    assert threshold < 0.7 or 1 - (1 - (threshold / 2) ** rows) ** count < 0.3


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, float("nan")])
def test_a_threshold_is_a_similarity(threshold: float) -> None:
    with pytest.raises(InputError, match="not above 0 and at most 1"):
        layout(threshold)


@pytest.mark.usefixtures("datasketch")
def test_near_duplicates_are_found_and_others_are_not() -> None:
    originals = texts(150, 300)
    other = texts(150, 300, seed=1)
    changed = [(a, a[:-15] + b[:15]) for a, b in zip(originals, other, strict=True)]  # share 95 % of words, in a row
    assert all(0.88 < similarity(a, b) < 0.92 for a, b in changed)
    assert share_found(changed, 0.8) > 0.97
    at_threshold = [(a, a[:-33] + b[:33]) for a, b in zip(originals, other, strict=True)]  # 90 % of them
    assert all(0.78 < similarity(a, b) < 0.82 for a, b in at_threshold)
    assert share_found(at_threshold, 0.8) > RECALL - 0.05
    quarter = [(a, a[:180] + b[:120]) for a, b in zip(originals, other, strict=True)]
    assert all(0.38 < similarity(a, b) < 0.45 for a, b in quarter)
    assert share_found(quarter, 0.8) < 0.1
    assert share_found(list(zip(originals, other, strict=True)), 0.8) == 0


@pytest.mark.usefixtures("datasketch")
def test_minima_estimate_similarity_whatever_the_length() -> None:
    """This also holds for a text longer than a block; with one row a band is the minimum itself."""
    (a, b) = texts(2, 3000)
    half = a[:2000] + b[:1000]
    assert layout(0.01) == (PERMUTATIONS, 1)
    shared = np.mean(bands(" ".join(a), 0.01) == bands(" ".join(half), 0.01))
    assert abs(shared - similarity(a, half)) < 0.15


@pytest.mark.usefixtures("datasketch")
def test_only_words_count() -> None:
    text = "The quick brown fox jumps over the lazy dog."
    same = bands(text, 0.8)
    assert same.dtype == np.uint64
    assert same.shape == (layout(0.8)[0],) == (16,)
    assert len(set(same.tolist())) == 16
    np.testing.assert_array_equal(bands("the  QUICK brown, fox -- jumps over the lazy dog", 0.8), same)
    assert not set(same.tolist()) & set(bands("The quick brown", 0.8).tolist())


@pytest.mark.usefixtures("datasketch")
def test_texts_shorter_than_a_shingle_are_near_duplicates_only_if_equal() -> None:
    short = ["", "fox", "Fox!", "the fox", "fox the", "the fox is the fox", "the fox is the dog"]
    alike = [set(bands(text, 0.8).tolist()) for text in short]
    assert [[i for i, other in enumerate(alike) if one & other] for one in alike] == [
        [0],
        [1, 2],
        [1, 2],
        [3],
        [4],
        [5],
        [6],
    ]
    assert bands("?!", 0.8).tolist() == bands("", 0.8).tolist()


@pytest.mark.usefixtures("datasketch")
def test_bands_are_the_same_in_every_process() -> None:
    """The numbers are fixed: machines that share a job must agree on them."""
    assert bands("The quick brown fox jumps.", 1.0).tolist() == [17014011483453090329]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    minhash._no_shingles.cache_clear()
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match=r"run: pip install 'deepsiam\[dumps\]'"):
        bands("text", 0.8)
