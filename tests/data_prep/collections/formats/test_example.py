"""A format is one file and one line: the example in CONTRIBUTING.md keeps the contract of all formats."""

import re
from typing import Any

import pytest

from deepsiam.data_prep.collections.registry import FORMATS
from tests.data_prep.collections.formats.contract import FormatContract
from tests.toy import ROOT


@pytest.fixture(autouse=True)
def faq(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Faq" in block)
    names: dict[str, Any] = {"__name__": "faq"}
    exec(code, names)
    assert '`"faq": Faq` in `FORMATS`' in page
    monkeypatch.setitem(FORMATS, "faq", names["Faq"])


class TestFaq(FormatContract):
    name = "faq"
    files = {"shop.txt": "Q: Where is my order?\nA: On its way.\n\nQ: When?\nA: Tomorrow.\n"}
    found = {"train": [("Where is my order?", {"On its way.": 1}), ("When?", {"Tomorrow.": 1})]}
    refused = [
        ("shop.txt", "Q: Why?", ":6: not a line `Q: …` with a line `A: …` after it"),
        ("shop.txt", "A: Because.", ":6: not a line"),
    ]
