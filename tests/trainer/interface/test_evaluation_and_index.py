"""`deepsiam.evaluate` has the command's table and numbers; an index from Python finds what `trainer.search` finds."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate, index, search
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def run(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a run") / "siamese"
    return write_run(folder, toy_collection / "tokenizer.json", name="siamese", **LENGTHS)


@pytest.fixture(scope="module")
def index_of_run(run: Path, toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the toy collection."""
    out = tmp_path_factory.mktemp("index") / "index"
    index.main([str(run), f"--collection={toy_collection}", f"--out={out}"])
    return out


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s", "0.0 s", text)


def test_the_table_is_the_commands(
    run: Path, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [f"--collection={toy_collection}", "--split=test", f"--out={tmp_path / 'r.json'}", "--metrics", "map@50"]
    fused = "fuse(bm25, mine, weight=0.3)"
    evaluate.main([*where, "--system=bm25", f'--system=mine="{run}"', f"--system=both={fused}", "--all-pairs"])
    printed = capsys.readouterr().out
    model = deepsiam.load(run)
    for mine in (model, run):
        systems = {"bm25": "bm25", "mine": mine, "both": fused}
        found = deepsiam.evaluate(deepsiam.Collection.open(toy_collection), systems, metrics=["map@50"])
        assert without_seconds(found.table(all_pairs=True) + "\n") == without_seconds(printed)
        assert repr(found) == str(found) == found.table()
        assert "every pair" not in str(found)
        results = json.loads((tmp_path / "r.json").read_text())
        assert found.metrics == {name: system["metrics"] for name, system in results["systems"].items()}
        assert found.results.pairs[0].p_value == results["pairs"][0]["p_value"]
    assert capsys.readouterr().out == ""  # the table is returned


def test_a_frame(run: Path, toy_collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = deepsiam.evaluate(toy_collection, ["bm25", f'mine="{run}"'])
    frames: list[Any] = []
    of_dicts = SimpleNamespace(from_dict=lambda rows, orient: frames.append((rows, orient)))
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=of_dicts))  # type: ignore[arg-type]
    found.to_pandas()
    assert frames == [(found.metrics, "index")]
    monkeypatch.setitem(sys.modules, "pandas", None)  # type: ignore[arg-type]
    with pytest.raises(deepsiam.InputError, match="not installed: run: pip install pandas"):
        found.to_pandas()


def test_what_is_refused(run: Path, toy_collection: Path, tmp_path: Path) -> None:
    """What the command refuses, too, is in its table: `trainer/commands/test_refusals.py`."""
    loaded = {"a": deepsiam.load(run), "b": deepsiam.load(run, precision="bf16")}
    for systems, said in (
        ({}, "^nothing to evaluate"),
        ({"x": tmp_path}, "neither a checkpoint nor a run folder"),
        (loaded, "was loaded twice: give the same model under both names"),
    ):
        with pytest.raises(deepsiam.InputError, match=said):
            deepsiam.evaluate(toy_collection, systems)  # type: ignore[arg-type]


def test_an_index_finds_what_the_command_finds(index_of_run: Path, toy_collection: Path, tmp_path: Path) -> None:
    arguments = ["--queries=test", f"--write-run={tmp_path / 'a.trec'}", "--k=5", "--ignore-identical-ids=off"]
    search.main([str(index_of_run), *arguments])
    expected: dict[str, list[tuple[str, float]]] = {}
    for line in (tmp_path / "a.trec").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        expected.setdefault(query, []).append((document, float(np.float32(score))))
    collection, opened = Collection.open(toy_collection), deepsiam.open_index(str(index_of_run))
    queries = [collection.queries.text(collection.queries.ids.number(name)) for name in expected]
    found = opened.search(queries, 5)
    assert [[(hit.id, hit.score) for hit in hits] for hits in found] == [*expected.values()]
    assert found[0][0].text == collection.corpus.text(collection.corpus.ids.number(found[0][0].id))
    assert [hit.id for hit in opened.search(f" {queries[0]} ")][:5] == [hit.id for hit in found[0]]
    assert len(opened.search(queries[0], 1000)) == 120
    assert opened.search([], 5) == []


def test_what_an_index_refuses(index_of_run: Path, run: Path, toy_collection: Path, tmp_path: Path) -> None:
    opened = deepsiam.open_index(index_of_run, toy_collection, run)
    for call, said in (
        (lambda: opened.search(["a", 5], 3), r"queries\[1\]: 5 is not a string"),  # type: ignore[list-item]
        (lambda: opened.search("a", 0), "k: 0 is no number of documents to find: give 1 or more"),
        (lambda: opened.search("a", 3, "centroids"), "--approximate centroids: .* has ivf, pq, hnsw|no such"),
        (lambda: deepsiam.open_index(tmp_path), "not an index; run: python -m trainer.index"),
    ):
        with pytest.raises(deepsiam.InputError, match=said):
            call()
