"""JSON files are read into types with bounds; each kind of damage is one line with file and key."""

import os
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import Count, FileName, InsideName, Record, Sha256, read_json


class Part(Record):
    name: FileName
    sha256: Sha256


class Whole(Record):
    count: Count
    share: float = 0.0
    parts: dict[InsideName, Part] = {}
    free: dict[str, Any] = {}


PART = '{"name": "a.npy", "sha256": "' + "0f" * 32 + '"}'


def test_values_are_read_and_keys_of_newer_code_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"count": 7, "parts": {"b/c.npy": ' + PART + '}, "new": [1]}')
    read = read_json(tmp_path / "a.json", Whole, "make it again")
    assert (read.count, read.share, read.parts["b/c.npy"].name) == (7, 0.0, "a.npy")
    assert read_json(tmp_path / "a.json", dict[str, Any], "").keys() == {"count", "parts", "new"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "count: field required"),
        ('{"count": null}', "count: input should be a valid integer"),
        ('{"count": "7"}', "count: input should be a valid integer"),
        ('{"count": true}', "count: input should be a valid integer"),
        ('{"count": 7.0}', "count: input should be a valid integer"),
        ('{"count": -1}', "count: input should be greater than or equal to 0"),
        ('{"count": 1e400}', "count: input should be a valid integer"),
        ('{"count": 281474976710656}', "count: input should be less than 281474976710656"),
        ('{"count": 1%s}' % ("0" * 5000), "not its kind of JSON .*number out of range"),
        ('{"count": 7, "share": NaN}', "share: input should be a finite number"),
        ('{"count": 7, "share": 1e400}', "share: input should be a finite number"),
        ('{"count": 7, "parts": [1]}', "parts: input should be"),
        ('{"count": 7, "parts": {"../a": ' + PART + "}}", r"parts.*: string should match pattern"),
        ('{"count": 7, "parts": {"/etc/a": ' + PART + "}}", r"parts.*: string should match pattern"),
        ('{"count": 7, "parts": {"a": {"name": "..", "sha256": ""}}}', "parts.a.name: string should match pattern"),
        ('{"count": 7, "free": %s}' % ('{"a":' * 5000), "not its kind of JSON .*recursion limit"),
        ('{"count": 7, "free": {"a": "\\ud800"}}', "not its kind of JSON"),
        ("[" * 100_000, "not its kind of JSON .*recursion limit"),
        ("[1]", "not its kind of JSON"),
        ("null", "not its kind of JSON"),
        ("", "not its kind of JSON"),
        ("\x00", "not its kind of JSON"),
    ],
)
def test_every_damage_is_one_line_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=f"a.json: {words}.*; make it again") as caught:
        read_json(tmp_path / "a.json", Whole, "make it again")
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"[" * 11)
    for name, words in {
        "pipe": "not a plain file",
        "zero": "not a plain file",
        ".": "not a plain file",
        "large": "larger than 10 bytes",
        "missing": "cannot read: No such file",
    }.items():
        with pytest.raises(InputError, match=words):
            read_json(tmp_path / name, Whole, "make it again", most=10)
