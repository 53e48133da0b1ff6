"""JSON arrays read in pieces of any size: each object has its line, and all damage is reported."""

import gzip
import json
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.files import json_array
from deepsiam.data_prep.collections.files.json_array import json_items
from deepsiam.data_prep.common.errors import InputError

ITEMS = [{"a": "é, ] \n }"}, {"b": [1, {"c": None}], "d": ""}, {}]


@pytest.mark.parametrize(("piece", "indent"), [(1, None), (7, 4), (1 << 20, None)])
def test_objects_are_as_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_array, "PIECE", piece)
    content = json.dumps(ITEMS, indent=indent, ensure_ascii=False).replace("\n", "\r\n").encode("utf-8-sig")
    (tmp_path / "a.json").write_bytes(content + b"\r\n")
    found = list(json_items(tmp_path / "a.json"))
    assert [item for _, item in found] == ITEMS
    lines = content.decode("utf-8-sig").split("\n")
    assert [where.item for where, _ in found] == ["element 1", "element 2", "element 3"]
    for where, item in found:
        assert "{" in lines[where.line - 1]
        assert all(f'"{key}"' in "\n".join(lines[where.line - 1 : where.line + 1]) for key in list(item)[:1])


def test_compressed_files_and_an_empty_array(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(ITEMS).encode()))
    assert [item for _, item in json_items(tmp_path / "a.json.gz")] == ITEMS
    (tmp_path / "b.json").write_text(" [ ] ")
    assert list(json_items(tmp_path / "b.json")) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1}', "a.json:1: not a JSON array: it does not begin with"),
        (b'[{"a": 1},\n{"a": ', "a.json:2: element 2: not JSON"),
        (b'[{"a": 1},\n\n{"a": 1,\n"b" 2}]', "a.json:4: element 2: not JSON .*delimiter"),
        (b'[{"a": 1}\n', "a.json:2: .*neither , nor ] .* cut short"),
        (b'[{"a": 1}\n{"a": 2}]', "a.json:2: .*neither , nor ]"),
        (b'[{"a": 1},\n]', "a.json:2: element 2: not JSON"),
        (b"[{},\n[1]]", "a.json:2: element 2: not a JSON object"),
        (b"[{}]\n[{}]", "a.json:2: .*more after its ]"),
        (b'[{},\n{"a": "\xff"}]', "a.json: not UTF-8"),
        (b"[\n" + b"[" * 100_000, "a.json:2: element 1: not JSON"),
        (b"  ", "a.json:1: not a JSON array"),
        (b"", "a.json: is empty"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        list(json_items(tmp_path / "a.json"))


@pytest.mark.parametrize("piece", [1, 10, 1 << 20])
@pytest.mark.parametrize("rest", ["", "\n" + " " * 1000 + "{}]"])
def test_a_syntax_error_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, rest: str) -> None:
    monkeypatch.setattr(json_array, "PIECE", piece)
    monkeypatch.setattr(json_array, "LONGEST_LINE", 100)  # shorter than the rest, whose length is not the error
    (tmp_path / "a.json").write_text('[{"a": 1},\n\n{"a": 1,\n"b": [\n"c" "d"]},\n{}' + rest)
    with pytest.raises(InputError, match="a.json:5: element 2: not JSON .*',' delimiter"):
        list(json_items(tmp_path / "a.json"))
    (tmp_path / "a.json").write_text('[{},\n{"a": "' + "x" * 1000)
    with pytest.raises(InputError, match="a.json:2: element 2: an object of more than 100 characters"):
        list(json_items(tmp_path / "a.json"))


def test_an_object_may_be_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = r'[{"a\n":  [ -1.25e-10, 1234567890123, true,false , null, -Infinity, NaN], "é\ud83d\ude00\\": {} }]'
    (tmp_path / "a.json").write_text(content)
    for piece in range(1, len(content) + 1):
        monkeypatch.setattr(json_array, "PIECE", piece)
        assert repr([item for _, item in json_items(tmp_path / "a.json")]) == repr(json.loads(content))
