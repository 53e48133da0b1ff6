"""`deepsiam.evaluate` prints the command's table and has its numbers, of models, paths and texts."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deepsiam
from deepsiam.trainer import evaluate
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def run(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a run") / "siamese"
    return write_run(folder, toy_collection / "tokenizer.json", name="siamese", **LENGTHS)


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
