"""A format is one file: the example in examples/ keeps the contract of all formats."""

from collections.abc import Iterator

import pytest

from deepsiam.registry import import_named
from tests.data_prep.collections.formats.contract import FormatContract
from tests.own_code import EXAMPLES, own_code


@pytest.fixture(autouse=True)
def faq() -> Iterator[None]:
    with own_code(EXAMPLES):
        import_named("deepsiam_examples.faq", "the test")
        yield


class TestFaq(FormatContract):
    name = "faq"
    files = {"shop.txt": "Q: Where is my order?\nA: On its way.\n\nQ: When?\nA: Tomorrow.\n"}
    found = {"train": [("Where is my order?", {"On its way.": 1}), ("When?", {"Tomorrow.": 1})]}
    refused = [
        ("shop.txt", "Q: Why?", ":6: not a line `Q: …` with a line `A: …` after it"),
        ("shop.txt", "A: Because.", ":6: not a line"),
    ]
