import os

import pytest

from data_prep.common.environment import variable


@pytest.mark.parametrize("before", [None, "old"])
def test_a_variable_is_set_in_the_block_alone(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("DEEPSIAM_TEST", raising=False)
    else:
        monkeypatch.setenv("DEEPSIAM_TEST", before)
    with variable("DEEPSIAM_TEST", "new"):
        assert os.environ["DEEPSIAM_TEST"] == "new"
    assert os.environ.get("DEEPSIAM_TEST") == before
