"""What is never a negative of a query, against plain loops; which document is the query itself."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.collections import relevant
from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection, verify
from deepsiam.data_prep.collections.flat_arrays import Rows
from deepsiam.data_prep.collections.relevant import Relevant, first_equal, left_out, own_documents, unranked
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests import toy


def made(
    folder: Path, tokenizer: Tokenizer, corpus: Mapping[str, str], queries: Mapping[str, str], qrels: str
) -> Collection:
    return build("beir", [toy.write_beir(folder, corpus, queries, train=qrels)], folder, tokenizer)


def names_of(opened: Collection, found: np.ndarray) -> list[str]:
    return [opened.corpus.ids[int(i)] if i >= 0 else "" for i in found]


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1), st.data())
def test_equal_rows_have_one_number(texts: list[list[int]], data: st.DataObject) -> None:
    """Of texts with the unknown token 2, the characters must be equal, too."""
    flat = np.array([token for text in texts for token in text], np.uint16)
    rows = Rows(flat, np.cumsum([len(text) for text in texts], dtype=np.int64))
    written = data.draw(st.lists(st.sampled_from(["a b", " a  b ", "c"]), min_size=len(texts), max_size=len(texts)))
    of_texts: Any = SimpleNamespace(token_rows=rows, tokens=rows.__getitem__, text=written.__getitem__)
    numbers = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1)))

    def equal(i: int, j: int) -> bool:
        return texts[i] == texts[j] != [] and (2 not in texts[i] or written[i].split() == written[j].split())

    expected = [next(j for j in numbers if j == i or equal(i, j)) for i in numbers]
    for at_once in (1, 2, 1 << 16):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(relevant, "ROWS", at_once)
            assert first_equal(of_texts, np.array(numbers), unknown=2).tolist() == expected


def test_what_is_relevant_to_a_text_under_any_id(tmp_path: Path, small: Tokenizer) -> None:
    corpus = {name: f"fox {name}" for name in ("d0", "d1", "d2", "d3")}
    queries = {"a": "lazy dog", "b": " Lazy  dog ", "c": "quick", "e": "", "f": "", "other": "lazy dog"}
    qrels = "b\td1\t2\na\td0\t1\na\td1\t0\nc\td2\t1\ne\td3\t1\nf\td0\t1\n"
    opened = made(tmp_path / "c", small, corpus, queries, qrels)
    known = Relevant.of_groups(opened, opened.groups("train"))
    found = {name: names_of(opened, known.of(i)) for i, name in enumerate(queries)}
    # texts without tokens are not equal; `other` is not a query of the split
    assert found == {"a": ["d0", "d1"], "b": ["d0", "d1"], "c": ["d2"], "e": ["d3"], "f": ["d0"], "other": []}
    assert known.labelled.tolist() == [0, 1, 2, 3]
    assert known.fewest_others() == 2
    given_pairs = np.array([0, 0, 1, 2]), np.array([1, 2, 0, 3])
    assert known.knows(*given_pairs).tolist() == [True, False, True, False]


def test_the_number_of_others_counts_the_query_itself_once(tmp_path: Path, small: Tokenizer) -> None:
    texts = {"x-a": "lazy dog", "x-b": "quick fox", "x-c": "brown fox"}
    opened = made(tmp_path / "c", small, texts, texts, "x-a\tx-b\t1\nx-b\tx-a\t1\nx-c\tx-c\t1\n")
    known = Relevant.of_groups(opened, opened.groups("train"))
    assert [known.never_negative(i).tolist() for i in range(3)] == [[0, 1], [0, 1], [2]]
    assert [known.of(i).tolist() for i in range(3)] == [[1], [0], [2]]
    assert (known.fewest_others(), known.own(2), known.own(9)) == (1, 2, -1)


def test_what_is_stored_is_what_the_groups_say(tmp_path: Path, small: Tokenizer) -> None:
    texts = {"x-a": "lazy dog", "x-b": "quick fox", "x-c": "Lazy  dog", "x-d": "fox", "x-e": ""}
    opened = made(tmp_path / "c", small, texts, texts, "x-a\tx-b\t1\nx-b\tx-a\t1\nx-c\tx-d\t1\nx-e\tx-b\t0\n")
    folder = opened.directory / "splits" / "train" / relevant.FOLDER
    stored, computed = Relevant.of_split(opened, "train"), Relevant.of_groups(opened, opened.groups("train"))
    assert sorted(path.stem for path in folder.iterdir()) == sorted(relevant.ARRAYS)
    for name in relevant.ARRAYS:
        assert isinstance(getattr(stored, name).base, np.memmap)
        np.testing.assert_array_equal(getattr(stored, name), getattr(computed, name), strict=True)
    assert [stored.of(i).tolist() for i in range(5)] == [[1, 3], [0], [1, 3], [], []]
    assert stored.fewest_others() == 0  # x-a has x-b, x-d and itself
    for name in ("queries", "places"):
        whole = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", whole[1:] + len(texts))
        with pytest.raises(InputError, match="train/relevant: damaged .its arrays are of different queries."):
            Relevant.of_split(opened, "train")
        np.save(folder / f"{name}.npy", whole)
    (folder / "places.npy").unlink()  # a collection that was made when places were not stored
    assert Relevant.of_split(opened, "train").places.tolist() == computed.places.tolist()
    shutil.rmtree(folder)  # a collection that was made before
    assert [Relevant.of_split(opened, "train").of(i).tolist() for i in range(5)] == [[1, 3], [0], [1, 3], [], []]


def test_excluded_documents_are_never_negatives_and_not_ranked(tmp_path: Path, small: Tokenizer) -> None:
    texts = {"x-a": "lazy dog", "x-b": "quick fox", "x-c": "brown fox", "x-d": "dog"}
    judged = "x-a\tx-b\t1\nx-b\tx-c\t1\nx-c\tx-d\t1\nx-c\tx-b\t0\nx-d\tx-b\t0\n"
    folder = toy.write_beir(tmp_path / "c", texts, texts, train=judged)
    excluded = {"x-a": ["x-d", "N/A", "x-a", "x-d"], "x-c": ["x-b"], "x-d": ["x-b"]}
    rows = ({"_id": name, "text": text, "excluded_ids": excluded.get(name)} for name, text in texts.items())
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = build("beir", [folder], folder, small)
    computed, stored = Relevant.of_groups(opened, opened.groups("train")), Relevant.of_split(opened, "train")
    for known in (computed, stored):
        assert [known.never_negative(i).tolist() for i in range(4)] == [[0, 1, 3], [1, 2], [1, 2, 3], [1, 3]]
        never = known.are_never_negative(np.array([0, 0, 1, 2]), np.array([3, 2, 3, 1]))
        assert never.tolist() == [True, False, False, True]
        assert (known.fewest_others(), known.of(0).tolist()) == (0, [1])  # x-b, x-c and x-d are labelled
    qrels = opened.qrels("train")  # a judgement of an excluded document is none; its query still counts
    assert (qrels["x-c"], qrels["x-d"]) == ({"x-d": 1}, {})
    left = unranked(opened, [0, 1, 2], {0: 0, 1: 1})
    assert {query: documents.tolist() for query, documents in left.items()} == {0: [0, 3], 1: [1], 2: [1]}
    assert list(verify(folder)) == []
    np.save(folder / "queries" / "excluded_ends.npy", np.array([2, 2, 4]))
    with pytest.raises(InputError, match="queries: damaged .excluded.npy is of other queries"):
        _ = Collection.open(folder).excluded


@pytest.mark.parametrize(
    ("ids", "documents", "counts"),
    [
        (["pro-01a", "con-2"], ["planes", "ships"], True),  # ArguAna: the ids are the same texts', whatever they say
        (["7", "12"], ["title Lift ", "to  swim"], True),  # Quora: numbers, but the documents have the queries' texts
        (["7", "12"], ["planes", "ships"], False),  # MS MARCO: numbers of two different lists
        (["7", "x"], ["planes", "ships"], None),  # a number and a name: the name counts
    ],
)
def test_id_spaces(tmp_path: Path, small: Tokenizer, ids: list[str], documents: list[str], counts: bool | None) -> None:
    corpus = {"other": "fox", **dict(zip(ids, documents, strict=True))}
    queries = {**dict(zip(ids, ["lift", "swim"], strict=True)), "q": "fox"}
    opened = made(tmp_path / "c", small, corpus, queries, "".join(f"{i}\tother\t1\n" for i in (*ids, "q")))
    numbers = np.arange(3)
    expected = {True: [1, 2, -1], False: [-1, -1, -1], None: [-1, 2, -1]}[counts]
    assert own_documents(opened, numbers).tolist() == expected
    assert own_documents(opened, numbers, by_id_alone=True).tolist() == [1, 2, -1]
    assert left_out(opened, "train", "auto") == {q: d for q, d in enumerate(expected) if d >= 0}
    assert left_out(opened, "train", "on") == {0: 1, 1: 2}
    assert left_out(opened, "train", "off") == {}


def test_a_document_that_is_judged_relevant_is_left_out_only_if_asked(tmp_path: Path, small: Tokenizer) -> None:
    """A summary and its body may share an id."""
    corpus, queries = {"f-1": "quick brown fox", "f-2": "lazy dog"}, {"f-1": "quick fox", "f-2": "dog"}
    opened = made(tmp_path / "c", small, corpus, queries, "f-1\tf-1\t1\nf-2\tf-2\t-1\nf-2\tf-1\t1\n")
    assert left_out(opened, "train", "auto") == {1: 1}
    assert left_out(opened, "train", "on") == {0: 0, 1: 1}
