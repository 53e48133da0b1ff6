import numpy as np
import pytest

from benchmarks.claims import AGAINST, METHODS, interval, table
from tests.toy import ROOT


def test_every_method_has_its_recipe() -> None:
    assert all((ROOT / "recipes" / f"{recipe}.yaml").is_file() for recipe, _ in METHODS.values())
    assert AGAINST in METHODS


def test_the_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(1).normal(0.3, 0.2, 1000)
    low, high = interval(values, 2000)
    error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_the_table_has_a_row_a_method_the_best_first() -> None:
    rng = np.random.default_rng(0)
    plain = rng.random((3, 200))
    lines = table({AGAINST: plain, "better": np.clip(plain + 0.2, 0, 1), "same": plain.copy()}, 0.5).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["better", AGAINST, "same", "BM25"]
    assert float(lines[2].split("|")[5]) < 0.001
    assert lines[3].split("|")[5].strip() == ""
    assert float(lines[4].split("|")[5]) == 1.0
