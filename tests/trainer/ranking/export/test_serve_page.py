"""docs/serve.md: its commands and its code, run as written, but for those of servers."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.trainer.ranking.indexes.registry import open_index
from tests import toy
from tests.hub import Hub
from tests.trainer.runs import write_run

PAGE = (toy.ROOT / "docs" / "serve.md").read_text()
COMMANDS = re.findall(r"^    python -m trainer\.(\w+) (.*)$", PAGE, re.MULTILINE)
ENCODE, SEARCH = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_a_run_is_served(toy_collection: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs the packages of the extra `faiss`")
    monkeypatch.chdir(tmp_path)
    lengths = {"max_query_tokens": 24, "max_document_tokens": 24}
    write_run(
        Path("runs/mine"),
        toy_collection / "tokenizer.json",
        name="siamese",
        similarity="cosine",
        pooling="mean",
        **lengths,
    )
    Path("data").mkdir()
    Path("data/mine").symlink_to(toy_collection)
    assert [command for command, _ in COMMANDS] == ["export", "index", "export", "export"]
    for command, arguments in COMMANDS:
        importlib.import_module(f"deepsiam.trainer.{command}").main(shlex.split(arguments))
    (pushed,) = hub.repositories["models", "OWNER/NAME"]
    assert pushed["model.safetensors"] == Path("exported/mine/model.safetensors").read_bytes()
    variables: dict[str, Any] = {}
    exec(ENCODE, variables)
    assert variables["scores"].shape == (1, 2)
    exec(SEARCH, variables)
    index = open_index("indexes/mine")
    assert variables["found"] == [[hit.id for hit in hits] for hits in index.search(["a query"], 3)]
    np.testing.assert_allclose(np.linalg.norm(variables["vectors"], axis=1), 1, atol=1e-5)
