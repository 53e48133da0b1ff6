"""Near-duplicates and n-grams: what is found is what a plain search finds, whatever the ranges and parts."""

import json
import re
import sys
import tempfile
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import minhash, near_duplicates, ngrams, spool
from deepsiam.data_prep.prepare.minhash import PERMUTATIONS, RECALL, bands, layout, surpassed
from deepsiam.data_prep.prepare.near_duplicates import RANGE_BYTES, Result
from deepsiam.data_prep.prepare.spool import RECORD
from deepsiam.data_prep.text.characters import visible
from tests import toy

EDGE = spool.KEYS // 2
BAND = st.sampled_from([1, 2, 3, EDGE - 1, EDGE, EDGE + 1, spool.KEYS - 1])
DOCUMENTS = st.lists(st.tuples(st.integers(0, 20), st.tuples(BAND, BAND)), max_size=10)
Documents = list[tuple[int, tuple[int, int]]]


@pytest.fixture(autouse=True)
def two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "ranges", lambda size, most: [(0, EDGE), (EDGE, spool.KEYS)])


def search(folder: Path, spooled: list[Path], parts: list[Path], others: list[Path]) -> Result:
    folder.mkdir()
    return near_duplicates.search(spooled, parts, others, folder, 1)


def spooled(path: Path, documents: Documents) -> Path:
    bands = np.array([bands for _, bands in documents], np.uint64) if documents else None
    spool.write(path, {}, [(key, b"") for key, _ in documents], bands)
    return path


def naive(documents: Documents, others: Documents) -> tuple[set[int], set[int]]:
    """Return the keys that share a band with a smaller key, and those that share one with `others`."""
    known = {band for _, bands in others for band in bands}
    surpassed = {
        key for key, bands in documents if any(other < key and set(bands) & set(their) for other, their in documents)
    }
    return surpassed, {key for key, bands in documents if known & set(bands)}


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), DOCUMENTS)
def test_a_document_that_shares_a_band_with_a_smaller_key_is_dropped(files: list[Documents], others: Documents) -> None:
    every = [document for documents in files for document in documents]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [spooled(folder / str(number), documents) for number, documents in enumerate(files)]
        other = search(folder / "other", [spooled(folder / "others", others)], [], []).pairs
        result = search(folder / "found", paths, [], [other])
        surpassed, elsewhere = naive(every, others)
        assert np.load(result.keys).tolist() == sorted(surpassed)
        assert np.load(result.elsewhere).tolist() == sorted(elsewhere)
        pairs = np.load(result.pairs)
        assert pairs.dtype == RECORD
        assert pairs.tolist() == sorted({(band, key) for key, bands in every for band in bands})
        parts = [search(folder / f"part {number}", [path], [], []).pairs for number, path in enumerate(paths)]
        for one, merged in zip(result, search(folder / "merged", [], parts, [other]), strict=True):
            assert one.read_bytes() == merged.read_bytes()


def test_a_finished_search_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(tmp_path / "found", [spooled(tmp_path / "a", [(1, (2, 3)), (4, (3, 9))])], [], [])
    (tmp_path / "found").rename(tmp_path / "first")
    search_again = [tmp_path / "a"], [], [], tmp_path / "first", 1
    monkeypatch.setattr(near_duplicates, "comparer", lambda *_: None)
    assert near_duplicates.search(*search_again) == Result(*(tmp_path / "first" / path.name for path in result))
    assert np.load(tmp_path / "first" / "keys.npy").tolist() == [4]


def test_ranges_are_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for size, number in [(0, 1), (1, 1), (RANGE_BYTES, 1), (RANGE_BYTES + 1, 2), (1 << 30, 8)]:
        ranges = spool.ranges(size, RANGE_BYTES)
        assert len(ranges) == number
        assert (ranges[0][0], ranges[-1][1]) == (0, spool.KEYS)
        assert all(one[1] == other[0] for one, other in pairwise(ranges))


def test_the_ranges_are_those_of_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(spool, "ranges", lambda size, most: sizes.append(size) or [(0, spool.KEYS)])
    files = [spooled(tmp_path / name, [(1, (2, 3))] * number) for name, number in (("a", 5), ("b", 0), ("c", 1))]
    result = search(tmp_path / "found", files, [], [])
    search(tmp_path / "merged", [], [result.pairs], [])
    assert sizes == [6 * 2 * 16, result.pairs.stat().st_size]


@pytest.mark.parametrize(
    ("pairs", "dropped"),
    [
        ([(7, 30), (8, 40), (7, 10), (7, 20)], [20, 30]),
        ([(1, 10), (1, 20), (2, 20), (2, 30)], [20, 30]),  # a chain
        ([(7, 10), (7, 10), (8, 10)], []),  # the same content
        ([], []),
    ],
)
def test_one_document_of_those_with_a_band_in_common_stays(pairs: list[tuple[int, int]], dropped: list[int]) -> None:
    records = np.array(pairs, RECORD)
    found = surpassed(records["band"], records["key"])
    assert (found.tolist(), found.dtype) == (dropped, np.uint64)


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


def texts(number: int, words: int, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"w{word}" for word in rng.integers(0, 5000, words)] for _ in range(number)]


def similarity(a: list[str], b: list[str]) -> float:
    sets = [{tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize(
    ("changed", "least", "most", "least_found", "most_found"),
    [
        (15, 0.88, 0.92, 0.97, 1),  # of 300 words, in a row
        (33, 0.78, 0.82, RECALL - 0.05, 1),  # at the threshold
        (120, 0.38, 0.45, 0, 0.1),
        (300, 0, 0.01, 0, 0),
    ],
)
def test_near_duplicates_are_found_and_others_are_not(
    changed: int, least: float, most: float, least_found: float, most_found: float
) -> None:
    common = []
    for a, b in zip(texts(150, 300), texts(150, 300, seed=1), strict=True):
        other = a[: 300 - changed] + b[:changed]
        assert least <= similarity(a, other) < most
        common.append(bool(set(bands(" ".join(a), 0.8).tolist()) & set(bands(" ".join(other), 0.8).tolist())))
    assert least_found <= np.mean(common) <= most_found


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
    same = bands("The quick brown fox jumps over the lazy dog.", 0.8)
    assert (same.dtype, same.shape, layout(0.8)[0]) == (np.uint64, (16,), 16)
    assert len(set(same.tolist())) == 16
    np.testing.assert_array_equal(bands("the  QUICK brown, fox -- jumps over the lazy dog", 0.8), same)
    assert not set(same.tolist()) & set(bands("The quick brown", 0.8).tolist())


@pytest.mark.usefixtures("datasketch")
def test_texts_shorter_than_a_shingle_are_near_duplicates_only_if_equal() -> None:
    short = ["", "fox", "Fox!", "the fox", "fox the", "the fox is the fox", "the fox is the dog"]
    alike = [set(bands(text, 0.8).tolist()) for text in short]
    found = [[i for i, other in enumerate(alike) if one & other] for one in alike]
    assert found == [[0], [1, 2], [1, 2], [3], [4], [5], [6]]
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


# n-grams

SOME_WORDS = ["The", "the", "FOX", "fox", "straße", "STRASSE", "été", "7", "_", "--", "’s"]
few_words = st.lists(st.sampled_from(SOME_WORDS), max_size=12).map(" ".join)


def naive_ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    words = re.findall(r"\w+", visible(text).casefold())
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


@given(few_words | st.text(), few_words | st.text(), st.integers(1, 4))
def test_hashes_are_equal_where_the_words_are(a: str, b: str, n: int) -> None:
    hashed = [ngrams.hashes(text, n) for text in (a, b)]
    expected = [naive_ngrams(text, n) for text in (a, b)]
    assert [array.dtype for array in hashed] == [np.uint64, np.uint64]
    assert [len(array) for array in hashed] == [len(grams) for grams in expected]
    every, known = np.concatenate(hashed).tolist(), sum(expected, [])
    assert [[x == y for y in every] for x in every] == [[x == y for y in known] for x in known]
    table = np.unique(hashed[1])
    assert ngrams.shares(hashed[0], table) == bool(set(expected[0]) & set(expected[1]))


def test_hashes_are_the_polynomials_they_are_said_to_be() -> None:
    """So they do not depend on a process's seed for hashing strings."""
    words = b"the", b"quick", b"fox"
    first, second, third = (int.from_bytes(blake2b(word, digest_size=8).digest(), "little") for word in words)
    base = int(ngrams._BASE)
    expected = [(first * base + second) % 2**64, (second * base + third) % 2**64]
    assert ngrams.hashes("The quick fox.", 2).tolist() == expected


def test_a_word_has_a_bounded_length() -> None:
    assert len(ngrams.words("x" * (3 * ngrams.LONGEST_WORD + 1))) == 4


@pytest.mark.parametrize("table", [[], [5], [0, 2**64 - 1]], ids=str)
def test_tables_of_every_size_are_searched(table: list[int]) -> None:
    known = np.array(table, np.uint64)
    for x in (0, 4, 5, 6, 2**64 - 1):
        assert ngrams.shares(np.array([x], np.uint64), known) == (x in table)
    assert not ngrams.shares(np.empty(0, np.uint64), known)


def test_collections_give_their_documents_titles_and_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = toy.write_beir(tmp_path / "one", {"a": "", "b": "it is so"}, {"q": "why do foxes jump"})
    titled = {"_id": "a", "title": "Foxes", "text": "jump over the dogs"}
    (one / "corpus.jsonl").write_text(json.dumps(titled) + "\n" + (one / "corpus.jsonl").read_text().split("\n")[1])
    two = toy.write_beir(tmp_path / "two", {"a": "Foxes jump over e\u0301te\u0301"}, {"q": "short"})
    texts = ["Foxes jump over the dogs", "it is so", "why do foxes jump", "Foxes jump over été"]
    expected = np.unique(np.concatenate([ngrams.hashes(text, 3) for text in texts]))
    for batch in (1, 2, 4096):
        monkeypatch.setattr(ngrams, "BATCH", batch)
        np.testing.assert_array_equal(ngrams.collection_ngrams([one, str(two)], 3), expected)
    assert len(expected) == 3 + 1 + 2 + 1
    assert ngrams.collection_ngrams([two], 9).tolist() == ngrams.collection_ngrams([], 3).tolist() == []
