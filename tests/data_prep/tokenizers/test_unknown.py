import numpy as np
import pytest

from deepsiam.data_prep.tokenizers import unknown


def test_the_share_of_unknown_tokens_is_described_and_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [np.array([7, 1, 8, 9]), np.full(96, 5)]
    assert unknown.describe(tokens, 1, "data") == "unknown tokens: 1.00 % of 100 in a sample"
    assert capsys.readouterr().err == ""
    assert unknown.describe([*tokens, np.array([1])], 1, "data") == "unknown tokens: 1.98 % of 101 in a sample"
    assert capsys.readouterr().err.startswith("warning: data: 1.98 % of the tokens are unknown ([UNK])")
    assert unknown.describe([], 1, "data") == "unknown tokens: 0.00 % of 0 in a sample"


def test_no_more_is_read_than_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "SAMPLE", 6)
    tokens = iter([np.array([1, 2, 3, 1]), np.array([2, 2, 1, 1]), np.array([1])])
    assert unknown.describe(tokens, 1, "data").endswith("33.33 % of 6 in a sample")
    assert len(list(tokens)) == 1
