"""A format is one file and one line: the example in CONTRIBUTING.md keeps the contract of all formats."""

from typing import Any

import pytest

from deepsiam.data_prep.collections.registry import FORMATS
from tests.data_prep.collections.formats.contract import FormatContract
from tests.toy import CONTRIBUTING, example


@pytest.fixture(autouse=True)
def faq(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "faq"}
    exec(example("class Faq("), names)
    assert '`"faq": Faq` in `FORMATS`' in CONTRIBUTING.read_text()
    monkeypatch.setitem(FORMATS, "faq", names["Faq"])


class TestFaq(FormatContract):
    name = "faq"
    files = {"shop.txt": "Q: Where is my order?\nA: On its way.\n\nQ: When?\nA: Tomorrow.\n"}
    found = {"train": [("Where is my order?", {"On its way.": 1}), ("When?", {"Tomorrow.": 1})]}
    refused = [
        ("shop.txt", "Q: Why?", ":6: not a line `Q: …` with a line `A: …` after it"),
        ("shop.txt", "A: Because.", ":6: not a line"),
    ]
