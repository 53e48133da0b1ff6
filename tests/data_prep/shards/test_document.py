"""What a shard stores of its documents besides their token ids."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.shards.document import TokenDocument, from_json, to_json
from tests.data_prep.shards import drawn

SEGMENTS = [np.array([1], np.uint16)] * 2
KEY = "0" * 16


@given(st.lists(drawn.documents(), max_size=8))
def test_all_attributes_survive_the_round_trip(documents: list[TokenDocument]) -> None:
    read = from_json(to_json(documents), [document.segments for document in documents])
    assert list(map(drawn.plain, read)) == list(map(drawn.plain, documents))


@given(st.lists(drawn.documents(), min_size=1, max_size=8))
def test_groups_are_stored_only_where_one_differs_from_its_id(documents: list[TokenDocument]) -> None:
    stored = json.loads(to_json(documents))
    assert ("groups" in stored) == any(document.group not in ("", document.id) for document in documents)


def test_only_attributes_that_a_document_has_are_stored() -> None:
    bare = TokenDocument(SEGMENTS, "a")
    assert json.loads(to_json([bare])) == {"documents": ["a"]}
    full = TokenDocument(SEGMENTS, "b", "book", (1,), 1, 255)
    assert json.loads(to_json([TokenDocument(SEGMENTS, "a", key=0), full])) == {
        "documents": ["a", "b"],
        "groups": ["a", "book"],
        "keys": [KEY, "00000000000000ff"],
        "headings": [[], [1]],
        "context": [0, 1],
    }


def test_a_document_without_a_stored_group_is_its_own() -> None:
    (document,) = from_json(b'{"documents": ["a"]}', [SEGMENTS])
    assert (document.group, document.key) == ("a", None)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([], "is not an object"),
        ({}, "no list 'documents' of 1 items"),
        ({"documents": []}, "no list 'documents' of 1 items"),
        ({"documents": ["a", "b"]}, "no list 'documents' of 1 items"),
        ({"documents": [1]}, "lists 1 among the documents"),
        ({"documents": ["a"], "groups": "a"}, "no list 'groups'"),
        ({"documents": ["a"], "groups": []}, "no list 'groups'"),
        ({"documents": ["a"], "groups": [["a"]]}, r"lists \['a'\] among the groups"),
        ({"documents": ["a"], "keys": []}, "no list 'keys'"),
        ({"documents": ["a"], "keys": "0"}, "no list 'keys'"),
        ({"documents": ["a"], "keys": ["0" * 15]}, "lists '000000000000000' among the keys"),
        ({"documents": ["a"], "keys": [7]}, "lists 7 among the keys"),
        ({"documents": ["a"], "keys": ["-" + "0" * 15]}, "among the keys"),
        ({"documents": ["a"], "headings": {}}, "no list 'headings'"),
        ({"documents": ["a"], "headings": [[2]]}, "more segments than the 2 of a document"),
        ({"documents": ["a"], "headings": [[1, 0]]}, r"lists the headings \[1, 0\] of a document out of order"),
        ({"documents": ["a"], "headings": [[-1]]}, r"lists \[-1\] among the headings"),
        ({"documents": ["a"], "headings": [0]}, "lists 0 among the headings"),
        ({"documents": ["a"], "context": 1}, "no list 'context'"),
        ({"documents": ["a"], "context": [3]}, "more segments than the 2 of a document"),
        ({"documents": ["a"], "context": [-1]}, "lists -1 among the context"),
        ({"documents": ["a"], "context": [True]}, "lists True among the context"),
    ],
)
def test_json_that_cannot_belong_to_the_segments_is_refused(columns: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(json.dumps(columns).encode(), [SEGMENTS])


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="its .json is not JSON"):
        from_json(content, [SEGMENTS])
