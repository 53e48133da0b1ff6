"""Learning curves of fine-tuned models."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import analyse
from deepsiam.trainer.analysis import learning
from deepsiam.trainer.analysis.learning import Point
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.runs import STEP, vouch, write_run

KEYS = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


def with_data(run: Path, **data: Any) -> Path:
    """Record in a run's only checkpoint what it was trained on."""
    folder = checkpoint.folder(run, STEP)
    values = yaml.safe_load((folder / checkpoint.RECIPE).read_text())
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(values | {"data": data}))
    vouch(folder)
    return run


def judged(folder: Path, tokenizer: Path) -> Path:
    """A collection whose only split, train, has two groups, of three relevant documents each."""
    texts = {f"t{i}": f"word {i}" for i in range(8)}
    rows = "".join(f"q{q}\tt{q + i}\t{label}\n" for q in (0, 1) for i, label in enumerate((1, 2, 0, 1)))
    toy.write_beir(folder, texts, {"q0": "word", "q1": "another word"}, train=rows)
    build("beir", [folder], folder, tokenizers.load(tokenizer))
    return folder


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    written = {name: write_run(folder / name, tokenizer, seed=i, **KEYS) for i, name in enumerate("abc")}
    with_data(written["a"], collection="gone", pairs=4)
    with_data(written["b"], collection="gone", pairs=8)
    with_data(written["c"], collection=str(toy_collection))
    return written


def arguments(collection: Path, out: Path, over: str, *more: str) -> list[str]:
    return ["learning", f"--collection={collection}", "--split=test", f"--over={over}", f"--out={out}", *more]


def test_over_labels_each_run_is_a_point(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection, out = Collection.open(toy_collection), tmp_path / "new" / "labels.png"
    named = [f"SEED={runs['b']}", f"SEED={runs['a']}", f"all={runs['c']}"]
    analyse.main(arguments(toy_collection, out, "labels", "--bm25", *named))
    lines = capsys.readouterr().out.splitlines()
    means = {
        name: evaluate_split(ranker_of(load_trained(run), collection), "test").means["mrr@10"]
        for name, run in runs.items()
    }
    every = collection.manifest["counts"]["splits"]["train"]
    assert lines[3].split() == ["labelled", "pairs", "SEED", "all"]
    assert lines[4].split() == ["4", f"{means['a']:.4f}"]
    assert lines[5].split() == ["8", f"{means['b']:.4f}"]
    assert lines[6].split() == [f"{every:,}", f"{means['c']:.4f}"]
    assert lines[7] == f"BM25 {evaluate_split(Bm25Ranker(collection), 'test').means['mrr@10']:.4f}"
    assert lines[8] == str(out)
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkpoints that are loaded from now on, to be ranked with."""
    folders: list[Path] = []
    monkeypatch.setattr(learning, "load_trained", lambda folder: folders.append(folder) or load_trained(folder))
    return folders


def kept_in(figure: Path) -> list[dict[str, Any]]:
    """The numbers that are kept beside a figure: one for each checkpoint."""
    return [*json.loads(figure.with_suffix(".json").read_text())["checkpoints"].values()]


def keep(figure: Path, **changes: Any) -> None:
    """Write other numbers beside a figure, as another version or precision would."""
    content = json.loads(figure.with_suffix(".json").read_text())
    for point in content["checkpoints"].values():
        point |= changes
    figure.with_suffix(".json").write_text(json.dumps(content))


def test_over_steps_each_checkpoint_is_a_point_and_is_ranked_once(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, loaded: list[Path]
) -> None:
    run, out = shutil.copytree(runs["a"], tmp_path / "run"), tmp_path / "steps.png"
    given = arguments(toy_collection, out, "steps", "--metric=recall@3", f"a={run}")
    analyse.main(given)
    assert [point["precision"] for point in kept_in(out)] == ["fp32"]
    for there, times in (("bf16", 1), (None, 0)):  # older code did not say in which
        keep(out, precision=there)
        loaded.clear()
        analyse.main(given)
        assert len(loaded) == times
    later = shutil.copytree(checkpoint.folder(runs["b"], STEP), checkpoint.folder(run, STEP + 1))
    loaded.clear()
    analyse.main(given)
    assert loaded == [later]
    assert [point["checkpoint"] for point in kept_in(out)] == [str(checkpoint.folder(run, STEP)), str(later)]


def test_labels_are_those_of_the_runs_own_data_whatever_is_ranked(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = judged(tmp_path / "own", toy_collection / "tokenizer.json")
    ranked = tmp_path / "ranked"
    texts = {f"t{i}": f"word {i}" for i in range(8)}
    toy.write_beir(ranked, texts, {"q": "word"}, test="q\tt1\t1\n")  # without a split train
    build("beir", [ranked], ranked, tokenizers.load(toy_collection / "tokenizer.json"))
    one = with_data(shutil.copytree(runs["b"], tmp_path / "one"), collection=str(own))
    source = {"collection": str(own), "weight": 1}
    mix = {"few": {**source, "pairs": 2}, "all": source}
    mixed = with_data(shutil.copytree(runs["c"], tmp_path / "mixed"), mix=mix)
    out = tmp_path / "labels.png"
    analyse.main(arguments(ranked, out, "labels", f"a={runs['a']}", f"a={one}", f"a={mixed}"))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-4:-1]] == ["4", "6", "8"]
    assert [point["labels"] for point in kept_in(out)] == [4, 6, 8]


def test_runs_at_the_same_place_are_all_shown() -> None:
    curves = {"SEED": [Point(4, 0.1), Point(8, 0.25), Point(8, 0.5)], "other": [Point(8, 0.75)]}
    assert [line.split() for line in learning.table(curves, "labels")][1:] == [
        ["4", "0.1000"],
        ["8", "0.2500", "0.7500"],
        ["8", "0.5000"],
    ]


def test_a_run_whose_data_are_gone_is_drawn_over_steps_and_refused_over_labels(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run, out, gone = shutil.copytree(runs["a"], tmp_path / "run"), tmp_path / "f.png", tmp_path / "gone"
    with_data(run, collection=str(gone))
    analyse.main(arguments(toy_collection, out, "steps", f"a={run}"))
    line = refused(analyse.main, *arguments(toy_collection, out, "labels", f"a={run}"))
    assert f"{checkpoint.folder(run, STEP)}: cannot count the labels that it was trained on: {gone}" in line


def test_labels_are_counted_again_and_numbers_of_another_metric_are_not_mixed(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    out = tmp_path / "f.png"
    given = arguments(toy_collection, out, "labels", f"a={runs['a']}")
    analyse.main(given)
    keep(out, labels=3)  # as an earlier version may have counted them
    analyse.main(given)
    assert [point["labels"] for point in kept_in(out)] == [4]
    assert "f.json: of another collection, split or metric" in refused(analyse.main, *given, "--metric=map@50")
