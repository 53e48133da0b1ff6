"""The claims benchmark: its recipes, its tables, and the folds of its collections."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import claims_material
from benchmarks.claims import AGAINST, COLLECTIONS, METHODS, interval, report, table
from data_prep.collections.collection import Collection
from data_prep.tokenizers import tokenizer
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


def test_the_table_has_a_row_for_each_method_the_best_first() -> None:
    rng = np.random.default_rng(0)
    plain = rng.random((3, 200))
    lines = table({AGAINST: plain, "better": np.clip(plain + 0.2, 0, 1), "same": plain.copy()}, 0.5).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["better", AGAINST, "same", "BM25"]
    assert float(lines[2].split("|")[5]) < 0.001
    assert lines[3].split("|")[5].strip() == ""
    assert float(lines[4].split("|")[5]) == 1.0


def test_a_table_for_every_collection() -> None:
    bm25 = {name: [0.5, 0.1] for name in COLLECTIONS}
    values = {name: [0.2, 0.4] for name in COLLECTIONS}
    text = report({AGAINST: [values, values], "seed": [values, values]}, bm25)
    assert [text.count(f"{name}, 2 queries\n") for name in COLLECTIONS] == [1] * len(COLLECTIONS)
    assert text.count("| BM25 | 0.3000 |") == len(COLLECTIONS)


def test_neighbouring_queries_stay_in_one_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in claims_material.CLASSIC:
        for part, letter in (("corpus", "d"), ("queries", "q")):
            lines = [json.dumps({"_id": f"{letter}{i}", "text": f"word {i}"}) for i in range(35)]
            write(tmp_path / name / f"{part}.jsonl", lines)
        judged = [f"q{i}\td{i}\t1" for i in range(35)]
        write(tmp_path / name / "qrels" / "train.tsv", ["query-id\tcorpus-id\tscore", *judged])
    monkeypatch.setattr(claims_material, "TOKENIZER", tmp_path / "tokenizer.json")
    tokenizer.train([f"word {i}" for i in range(100)], 64, claims_material.TOKENIZER)
    collection = Collection.open(claims_material.classic(tmp_path, tmp_path / "out"))
    first, second = (collection.qrels(fold) for fold in claims_material.FOLDS)
    assert not first.keys() & second.keys()
    assert len(first) + len(second) == 70
    assert {f"cranfield/q{i}" for i in (*range(10), *range(20, 30))} < first.keys()
    assert collection.qrels("vaswani-first") == {query: d for query, d in first.items() if query.startswith("vaswani/")}
    pool = collection.pool("vaswani-second").tolist()
    assert [collection.corpus.ids[i] for i in pool] == [f"vaswani/d{i}" for i in range(35)]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
