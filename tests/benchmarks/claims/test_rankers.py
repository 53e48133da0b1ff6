"""The benchmark of rankers: the settings of its runs, the systems that it ranks with, and its judged queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims import rankers
from benchmarks.claims.rankers import HEADLESS, MODELS, STARTS, WITHOUT, Bench, few_queries, finished
from tests.toy import ROOT
from trainer.ranking.evaluation.expression import Given, parse
from trainer.training.recipe.schema import FinetuneRecipe
from trainer.training.recipe.yaml_file import load


@pytest.mark.parametrize("start", STARTS)
def test_every_model_is_trained_and_ranks(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes: dict[str, FinetuneRecipe] = {}
    asked: list[list[str]] = []

    def trained(module: str, recipe: str, path: Path, settings: dict[str, object], ranks: int) -> None:
        if module == "trainer.finetune":
            overrides = [f"{key}={value}" for key, value in {**settings, "run": path}.items()]
            recipes[path.name] = load(FinetuneRecipe, ROOT / recipe, overrides)

    monkeypatch.setattr(rankers, "train", trained)
    monkeypatch.setattr(rankers, "run_or_exit", lambda command: asked.append([*command]))
    monkeypatch.setattr(rankers, "encoder", lambda start: tmp_path / start)
    monkeypatch.setattr(rankers, "few_queries", lambda source, out: None)
    monkeypatch.setattr(rankers.material, "data_prep", lambda *arguments: None)
    monkeypatch.setattr(Bench, "by_index", lambda self, system, start, name, *options: Path(f"{name}.trec"))
    file = Bench(tmp_path).results(start, 2)
    models = MODELS.keys() - WITHOUT.get(start, ())
    assert recipes.keys() == {f"{name}-{start}-2" for name in models}
    for name in models:
        recipe = recipes[f"{name}-{start}-2"]
        assert recipe.seed == 2
        assert recipe.trunk is None
        assert (recipe.init_from or Path()).name == start
        new = "new_mlm" if name in HEADLESS.get(start, ()) else "mlm"
        assert getattr(recipe.method, "head", new) in ("linear", new)
    evaluate = asked[-1]
    assert evaluate[evaluate.index("--out") + 1] == str(file)
    given: dict[str, Given] = {}
    for option in evaluate:
        if option.startswith("--system="):
            one = parse(option.removeprefix("--system="), {name: known.expression for name, known in given.items()})
            given[one.name] = one
    assert [*given][:3] == ["bm25", "dense", "colbert"]
    assert {f"{name}_bm25" for name in models if MODELS[name].finds} < given.keys()
    assert ("tilde" in given) == ("tilde" in models)
    monkeypatch.setattr(rankers, "finished", lambda run, steps: False)
    recipes.clear()
    Bench(tmp_path).tune_all([start], 3, at_once=4)
    assert recipes.keys() == {f"{name}-{start}-{seed}" for name in models for seed in (1, 2, 3)}


def test_a_finished_run_is_not_started_again(tmp_path: Path) -> None:
    assert not finished(tmp_path, 300)
    (tmp_path / "checkpoints" / "step-00000200").mkdir(parents=True)
    assert not finished(tmp_path, 300)
    (tmp_path / "checkpoints" / "step-00000300").mkdir()
    assert finished(tmp_path, 300)


def test_few_queries_are_judged_and_no_pool_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    for folder in ("qrels", "pools"):
        (source / folder).mkdir(parents=True)
    for name in ("corpus", "queries"):
        (source / f"{name}.jsonl").write_text(json.dumps({"_id": "a", "text": "b"}) + "\n")
    rows = [f"q{i}\td{j}\t1\n" for i in range(9) for j in range(2)]
    for split in ("train", "test"):
        (source / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    monkeypatch.setattr(rankers, "QUERIES", {"test": 4})
    few_queries(source, tmp_path / "out")

    def judged(split: str) -> list[Any]:
        head, *lines = (tmp_path / "out" / "qrels" / f"{split}.tsv").read_text().splitlines()
        assert head == "query-id\tcorpus-id\tscore"
        return [line.split("\t")[0] for line in lines]

    assert len(judged("train")) == 18
    assert len(judged("test")) == 8
    assert len(set(judged("test"))) == 4
    assert not (tmp_path / "out" / "pools").exists()
