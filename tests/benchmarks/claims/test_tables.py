"""The tables of the claims benchmark: every number in its place."""

from collections.abc import Mapping

import numpy as np

from benchmarks.claims.tables import Row, rates_table, report, table
from benchmarks.claims.tunings import COLLECTIONS, RATES, TEXTS, Tuning

TUNED = {"docstrings": ("docstrings",), "first": ("cranfield", "vaswani"), "second": ("cranfield", "vaswani")}


def row(values: np.ndarray, dev: Mapping[str, Mapping[float, float]] | None = None) -> Row:
    """A start with the same values fp64 [seeds, queries] in every collection."""
    seeds = [{collection: list(queries) for collection in COLLECTIONS} for queries in values]
    return Row(seeds, dev or {tuning: {1e-3: 0.2, 3e-3: 0.1} for tuning in TUNED})


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_for_each_start_the_best_first() -> None:
    plain = np.random.default_rng(0).random((3, 200))
    rows = {"mlm": row(plain), "better": row(np.clip(plain + 0.2, 0, 1)), "random": row(plain.copy())}
    head, _, *lines = map(
        cells, table(rows, "cranfield", ["first"], dict(zip(TEXTS, ([0.5], [0.25]), strict=True))).splitlines()
    )
    assert [line[0] for line in lines] == ["better", "mlm", "random", "BM25, whole text", "BM25, cut text"]
    assert {len(line) for line in lines} == {len(head)}
    against_mlm, against_random = head.index("p against the masked LM"), head.index("p against random weights")
    assert float(lines[0][against_mlm]) < 0.001
    assert float(lines[0][against_random]) < 0.001
    assert (lines[1][against_mlm], float(lines[1][against_random])) == ("", 1.0)
    assert (float(lines[2][against_mlm]), lines[2][against_random]) == (1.0, "")
    assert [line[head.index("MRR@10")] for line in lines[3:]] == ["0.5000", "0.2500"]
    assert lines[1][head.index("by seed")] == ", ".join(f"{mean:.4f}" for mean in plain.mean(1))


def test_no_p_value_against_a_start_that_was_not_measured() -> None:
    lines = table({"ict": row(np.ones((1, 4)))}, "docstrings", ["docstrings"], {}).splitlines()
    assert cells(lines[2])[-2:] == ["", ""]


def test_the_chosen_rates_are_printed_and_bold() -> None:
    dev = {"docstrings": {3e-4: 0.1, 1e-3: 0.3}, "first": {3e-4: 0.2, 1e-3: 0.1}, "second": {3e-4: 0.1, 1e-3: 0.1}}
    rows = {"mlm": row(np.ones((1, 4)), dev)}
    assert cells(table(rows, "docstrings", ["docstrings"], {}).splitlines()[2])[1] == "0.001"
    assert cells(table(rows, "vaswani", ["first", "second"], {}).splitlines()[2])[1] == "0.0003, 0.0003"
    head, _, line = map(cells, rates_table(rows).splitlines())
    assert head == ["start", "docstrings", "first", "second"]
    assert line == ["mlm", "0.1000 / **0.3000**", "**0.2000** / 0.1000", "**0.1000** / 0.1000"]


def test_a_table_for_every_collection_and_one_of_rates() -> None:
    tunings = [Tuning(name, None, {}, (), dict.fromkeys(ranked, "")) for name, ranked in TUNED.items()]  # type: ignore[arg-type]
    bm25 = {text: {name: [0.5, 0.1] for name in COLLECTIONS} for text in TEXTS}
    values = np.array([[0.2, 0.4], [0.2, 0.4]])
    text = report({"mlm": row(values), "seed": row(values)}, tunings, bm25)
    assert [text.count(f"{name}, 2 queries\n") for name in COLLECTIONS] == [1] * len(COLLECTIONS)
    assert [text.count(f"| BM25, {what} | | 0.3000 |") for what in TEXTS] == [len(COLLECTIONS)] * 2
    assert f"with the rates {' / '.join(f'{rate:g}' for rate in RATES)}\n" in text
    assert text.count("| seed | 0.001 | 0.3000 |") == 1
    assert text.count("| seed | 0.001, 0.001 | 0.3000 |") == 2
