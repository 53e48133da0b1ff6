"""Learning curves of fine-tuned models."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from data_prep.collections.collection import Collection
from tests.trainer.runs import STEP, vouch, write_run
from trainer import analyse
from trainer.analysis import learning
from trainer.ranking.evaluation.task import evaluate_split
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.training.checkpoints import checkpoint
from trainer.training.checkpoints.load import load_trained

KEYS = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


def with_pairs(run: Path, pairs: int | None) -> Path:
    """Record in a run's only checkpoint how many pairs it was trained on."""
    folder = checkpoint.folder(run, STEP)
    values = yaml.safe_load((folder / checkpoint.RECIPE).read_text())
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(values | {"data": values["data"] | {"pairs": pairs}}))
    vouch(folder)
    return run


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    written = {name: write_run(folder / name, tokenizer, seed=i, **KEYS) for i, name in enumerate("abc")}
    return {name: with_pairs(run, pairs) for (name, run), pairs in zip(written.items(), (4, 8, None), strict=True)}


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


def test_over_steps_each_checkpoint_is_a_point_and_is_ranked_once(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tmp_path / "run", tmp_path / "steps.png"
    shutil.copytree(runs["a"], run)
    analyse.main(arguments(toy_collection, out, "steps", "--metric=recall@3", f"a={run}"))
    later = checkpoint.folder(run, STEP + 1)
    shutil.copytree(checkpoint.folder(runs["b"], STEP), later)
    ranked: list[Path] = []
    monkeypatch.setattr(learning, "load_trained", lambda folder: ranked.append(folder) or load_trained(folder))
    analyse.main(arguments(toy_collection, out, "steps", "--metric=recall@3", f"a={run}"))
    assert ranked == [later]
    points = json.loads(out.with_suffix(".json").read_text())["checkpoints"].values()
    assert [point["checkpoint"] for point in points] == [str(checkpoint.folder(run, STEP)), str(later)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric=speed@1", "a=a"], "--metric: 'speed@1' is not a metric: write mrr@K"),
        (["a=nowhere"], "nowhere: has no checkpoint: name a fine-tuning run"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    toy_collection: Path, tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        analyse.main(arguments(toy_collection, tmp_path / "f.png", "steps", *options))
    assert exit_.value.code == 2
    assert words in capsys.readouterr().err


def test_numbers_of_another_metric_are_not_mixed(
    runs: dict[str, Path], toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "f.png"
    analyse.main(arguments(toy_collection, out, "labels", f"a={runs['a']}"))
    with pytest.raises(SystemExit):
        analyse.main(arguments(toy_collection, out, "labels", "--metric=map@50", f"a={runs['a']}"))
    assert "f.json: of another collection, split or metric" in capsys.readouterr().err
