import base64
import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import bounds, tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer


def sequence(steps: str, *items: Any) -> dict[str, Any]:
    return {"type": "Sequence", steps: list(items)}


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def charsmap(replacements: bytes) -> dict[str, Any]:
    content = (1024).to_bytes(4, "little") + bytes(1024) + replacements
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def nested(depth: int) -> dict[str, Any]:
    return sequence("normalizers", nested(depth - 1)) if depth else {"type": "NFC"}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TWICE = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 3, "special_tokens": {}}


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            "normalizer",
            sequence("normalizers", *[replace("q", "qq")] * 40),
            "makes 512 characters or more of 8, as of 'q'",
        ),
        ("normalizer", sequence("normalizers", *[replace("x", "yy"), replace("y", "xx")] * 9), "makes 512 characters"),
        ("normalizer", sequence("normalizers", *[replace(r"\d", "12", "Regex")] * 40), "makes 512 characters"),
        ("normalizer", replace("fox", "dog" * 999), "makes 23,976 characters or more of 24, as of 'fox'"),
        ("normalizer", {"type": "Prepend", "prepend": "z" * 999}, "makes 1,007 characters"),
        ("normalizer", sequence("normalizers", *[{"type": "NFC"}] * 65), "has 65 steps, and at most 64 are supported"),
        ("normalizer", nested(9), "has steps within steps more than 8 deep"),
        ("normalizer", charsmap(b"a\0" + b"b" * 999), "precompiled_charsmap is larger, or makes more of a character"),
        ("pre_tokenizer", sequence("pretokenizers", *[BYTES] * 30), "characters or more of 8"),
        ("pre_tokenizer", split("a?" * 5000), "has patterns of more than 8,192 characters"),
        ("decoder", sequence("decoders", *[replace("a", "aa")] * 50), "makes 512 characters"),
        ("post_processor", sequence("processors", *[TWICE] * 40), "has a text 3 times"),
        ("post_processor", {"type": "TemplateProcessing", "single": [{}] * 257}, "has a list of 257 items"),
        ("model", {"max_input_chars_per_word": 10**9}, "max_input_chars_per_word is above 1,000"),
        ("model", {"continuing_subword_prefix": "#" * 101}, "continuing_subword_prefix has more than 100 characters"),
        ("added_tokens", [{}] * 50_001, "has more than 50,000 items"),
    ],
)
def test_a_file_that_would_grow_without_bound_is_refused(
    small: Tokenizer, tmp_path: Path, part: str, value: Any, message: str
) -> None:
    record = json.loads(small.path.read_bytes())
    record[part] = record[part] | value if part == "model" else value
    (tmp_path / "t.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="t.json: not a usable tokenizer.json") as refusal:
        tokenizer.load(tmp_path / "t.json")
    assert part in str(refusal.value)
    assert message in str(refusal.value)


def test_what_published_files_do_is_in_bounds() -> None:
    steps = [
        replace(" ", "▁"),
        replace("…", "..."),
        replace(" {2,}", " ", "Regex"),
        {"type": "Prepend", "prepend": "▁"},
    ]
    kinds = [{"type": "NFKD"}, {"type": "Lowercase"}, charsmap("صلى الله عليه وسلم".encode())]
    content = {"normalizer": sequence("normalizers", *steps, *kinds), "pre_tokenizer": BYTES, "model": {}}
    bounds.require_bounded(content)


def test_a_pattern_that_takes_too_long_on_a_text_is_one_clear_line(small: Tokenizer, tmp_path: Path) -> None:
    record = json.loads(small.path.read_bytes()) | {"pre_tokenizer": split("(a+)+$")}
    (tmp_path / "t.json").write_text(json.dumps(record))
    loaded = tokenizer.load(tmp_path / "t.json")
    with pytest.raises(InputError, match=r"t.json: fails at a text \(.*limit.*\); use another tokenizer"):
        loaded.encode(["a" * 40 + "b"])
