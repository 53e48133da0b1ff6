"""The search benchmark measures every part, at sizes that take seconds."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.common import machine, side_by_side
from benchmarks.retrieval import __main__ as retrieval
from benchmarks.retrieval import search, whole_path
from deepsiam.trainer.ranking.retrieval.search import CORPUS_BLOCK
from tests import warm

ENCODER = {"layers": 1, "hidden": 32, "words": 300, "batch": 4, "micro": 4, "median": 8, "longest": 24}
TINY = {
    "encoding": ENCODER,
    "search": {"texts": 500, "width": 16, "queries": 8, "best": 5},
    "sparse": {"texts": 300, "terms": 12, "vocabulary": 60, "queries": 8, "query_terms": 4, "best": 5},
    "path": {"passages": [20, 40, 80], "words": 6, "queries": 4, "hidden": 16},
    "residual": {"vectors": 4000, "width": 12, "of_a_text": 8, "directions": 50, "queries": 4, "of_a_query": 6},
    "small": {"texts": 3000, "width": 40, "queries": 8},
    "refresh": {**ENCODER, "steps": 6, "every": 2},
}


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("sentence_transformers", reason="needs the packages of the extra `dev`")
    monkeypatch.setattr(side_by_side, "MOST_ROUNDS", 3)
    with warm.server():
        yield


@pytest.mark.slow
def test_every_part_is_measured_and_written(
    forked_python: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, described = tmp_path / "out.json", machine.describe()
    monkeypatch.setattr(machine, "describe", lambda: {**described, "instructions": ["AVX512-BF16"]})
    monkeypatch.setattr(whole_path, "ProcessPoolExecutor", lambda workers, context: ThreadPoolExecutor(workers))
    monkeypatch.setattr(whole_path, "WORDS", 300)
    retrieval.main(["--minutes", "60", "--sizes", json.dumps(TINY), "--out", str(out)])
    results = json.loads(out.read_text())
    assert results["skipped"] == {}
    parts = results["parts"]
    assert parts["encoding"]["rounds"] == {"float32": 3, "bfloat16": 3}
    for precision in ("float32", "bfloat16"):
        assert parts["encoding"]["ratios"][f"deepsiam / sentence-transformers, {precision}"]["min"] > 0
    assert parts["search"]["rounds"] == 3
    assert parts["search"]["memory_bytes"].keys() == {"deepsiam", "faiss IndexFlatIP"}
    assert parts["sparse"]["memory_bytes"].keys() == {"deepsiam", "scipy product", "bm25s"}
    assert {"collection", "index", "search"} <= parts["path"]["growth"].keys()
    assert all(len(growth["values"]) == 3 for growth in parts["path"]["growth"].values())
    assert parts["residual"]["ratios"].keys() == {f"residual2 / float16, {n} at once" for n in (1, 4)}
    figures = parts["residual"]["figures"]
    assert 0.3 < figures["share of float16's first 10, residual1"] < figures["share of float16's first 10, residual4"]
    assert figures["bytes of a vector"] == 4 + 3
    assert len(parts["small"]["ratios"]) == 4
    figures = parts["small"]["figures"]
    assert [figures[f"bytes of a {what}"] for what in ("vector, float16", "code, int8", "code, binary")] == [80, 40, 8]
    assert 0.5 < figures["share of float16's first 10, binary"] <= figures["share of float16's first 10, int8"] <= 1
    figures = parts["refresh"]["figures"]
    (share,) = (value for name, value in figures.items() if name.startswith("share"))
    assert share == pytest.approx(1 / (1 + 2 / figures["a refresh, in steps"]))
    assert 0 < share < 1
    assert {"sentence-transformers", "faiss-cpu"} <= results["machine"]["versions"].keys()
    printed = capsys.readouterr().out
    for line in ("encoding: deepsiam, float32", "memory of faiss", "path: index: ", "refresh: a refresh, in steps"):
        assert line in printed


@pytest.mark.slow
def test_memory_is_that_of_the_search_alone() -> None:
    sizes = search.SearchSizes(texts=100_000, width=256, queries=256, best=5)  # 102 MB, not counted
    scores = sizes.queries * CORPUS_BLOCK * 4  # 8 MB
    # two to five blocks of scores, by how malloc and BLAS keep theirs on a machine; far less than the vectors
    assert scores < search.memory_of(sizes, search.OURS) < 8 * scores
