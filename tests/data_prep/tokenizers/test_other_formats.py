"""A path that has something else than a tokenizer is one line, which says what it is and what to do."""

import json
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer

ADAPTERS, NAME = json.dumps({"base_model_name_or_path": "some/base"}), "name a folder with config.json, tokenizer.json"


@pytest.mark.parametrize(
    ("files", "named", "message"),
    [
        ({"adapter_config.json": ADAPTERS}, "", "adapters are not supported: merge them into their base, 'some/base' "),
        ({"m.gguf": ""}, "", f"m.gguf: is a model in GGUF.*: {NAME}"),
        ({"m.gguf": ""}, "m.gguf", f"m.gguf: is a model in GGUF.*: {NAME}"),
        ({"snapshots/abc/tokenizer.json": ""}, "", "name a folder in it, .*snapshots/abc$"),
        ({"m.gguf": "", "vocab.txt": ""}, "", "tokenizer.json: is missing, and vocab.txt of an older tokenizer is"),
        ({"m.gguf": "", "vocab.txt": ""}, "mistyped", "mistyped: cannot read: No such file"),
    ],
    ids=["adapters", "GGUF in a folder", "GGUF", "the hub's cache", "vocab.txt", "another name"],
)
def test_other_forms_are_one_line(tmp_path: Path, files: dict[str, str], named: str, message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as error:
        tokenizer.load(tmp_path / named)
    assert "\n" not in str(error.value)
