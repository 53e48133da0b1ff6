"""The benchmark of rankers: the settings of its runs, the systems that it ranks with, and its judged queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.claims import rankers
from benchmarks.claims.rankers import MINILM, MODELS, STARTS, Bench, finished, in_thirds, to_rank
from deepsiam.trainer.ranking.evaluation.expression import Given, parse
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


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
    monkeypatch.setattr(rankers, "encoder", lambda: tmp_path / MINILM)
    monkeypatch.setattr(rankers, "to_rank", lambda source, out: None)
    monkeypatch.setattr(rankers.material, "data_prep", lambda *arguments: None)
    monkeypatch.setattr(Bench, "by_index", lambda self, system, start, name, *options: Path(f"{name}.trec"))
    file = Bench(tmp_path).results(start, 2)
    assert recipes.keys() == {f"{name}-{start}-2" for name in MODELS}
    for name in MODELS:
        recipe = recipes[f"{name}-{start}-2"]
        assert recipe.seed == 2
        assert recipe.trunk is None
        assert (recipe.init_from or Path()).name == start
        assert getattr(recipe.method, "head", "mlm") in ("linear", "mlm")
    evaluate = asked[-1]
    assert evaluate[evaluate.index("--out") + 1] == str(file)
    given: dict[str, Given] = {}
    for option in evaluate:
        if option.startswith("--system="):
            one = parse(option.removeprefix("--system="), {name: known.expression for name, known in given.items()})
            given[one.name] = one
    assert [*given][:3] == ["bm25", "dense", "colbert"]
    assert {f"{name}_bm25" for name, model in MODELS.items() if model.finds} < given.keys()
    monkeypatch.setattr(rankers, "finished", lambda run, steps: False)
    recipes.clear()
    Bench(tmp_path).tune_all([start], 3, at_once=4)
    assert recipes.keys() == {f"{name}-{start}-{seed}" for name in MODELS for seed in (1, 2, 3)}


def test_a_finished_run_is_not_started_again(tmp_path: Path) -> None:
    assert not finished(tmp_path, 300)
    (tmp_path / "checkpoints" / "step-00000200").mkdir(parents=True)
    assert not finished(tmp_path, 300)
    (tmp_path / "checkpoints" / "step-00000300").mkdir()
    assert finished(tmp_path, 300)


def test_few_queries_rank_few_documents_their_own_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    for folder in ("qrels", "pools"):
        (source / folder).mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{i}", "text": "b"}) + "\n" for i in range(60)]
    (source / "corpus.jsonl").write_text("".join(lines))
    (source / "queries.jsonl").write_text(json.dumps({"_id": "q0", "text": "b"}) + "\n")
    (source / "pools" / "test.txt").write_text("".join(f"d{i}\n" for i in range(40)))
    for split, offset in (("train", 0), ("dev", 9), ("test", 18)):
        rows = [f"q{i}\td{2 * i + j}\t1\n" for i in range(offset, offset + 9) for j in range(2)]
        (source / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    monkeypatch.setattr(rankers, "QUERIES", {"dev": 3, "test": 4})
    monkeypatch.setattr(rankers, "DOCUMENTS", 20)
    to_rank(source, out)

    def judged(split: str) -> list[list[str]]:
        head, *lines = (out / "qrels" / f"{split}.tsv").read_text().splitlines()
        assert head == "query-id\tcorpus-id\tscore"
        return [line.split("\t") for line in lines]

    assert {split: len({row[0] for row in judged(split)}) for split in rankers.QUERIES} == {"dev": 3, "test": 4}
    ranked = [json.loads(line)["_id"] for line in (out / "corpus.jsonl").read_text().splitlines()]
    assert len(set(ranked)) == len(ranked) == 20
    assert {row[1] for split in rankers.QUERIES for row in judged(split)} < set(ranked)
    assert not (out / "qrels" / "train.tsv").exists()
    (out / "corpus.jsonl").write_text("")
    to_rank(source, out)  # exists
    assert not (out / "corpus.jsonl").read_text()


def test_every_third_query_chooses_the_weights(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (source / name).write_text("{}\n")
    rows = [f"q{i}\td{j}\t1\n" for i in range(7) for j in range(2)]
    (source / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    for _ in range(2):
        in_thirds(source, out)
        assert (out / "qrels" / "dev.tsv").read_text().splitlines()[1:] == [
            row.strip() for row in rows[4:6] + rows[10:12]
        ]
        assert len((out / "qrels" / "test.tsv").read_text().splitlines()) == 1 + 10
