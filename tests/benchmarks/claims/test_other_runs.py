"""Claims about negatives, rankers and SEED's figures: their runs differ only in what they compare."""

from pathlib import Path

import pytest

from benchmarks.claims import negatives, rankers
from benchmarks.claims.negatives import BATCH, KINDS, OWN, NegativesBench
from benchmarks.claims.negatives import RANDOM as RESAMPLED
from benchmarks.claims.rankers import MINILM, MODELS, STARTS, Bench
from benchmarks.claims.tunings import Tuning
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.evaluation.expression import Given, parse
from tests import toy
from tests.benchmarks.fake_training import FakeTraining
from tests.trainer.runs import write_run

FILTER = {"name": "cross_encoder", "loss": "binary", "max_query_tokens": 8, "max_document_tokens": 16}


def test_runs_differ_in_their_negatives_alone(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, folder = FakeTraining(), toy.write_collection(tmp_path / "texts", shards / "tokenizer.json", count=60)
    texts = Collection.open(folder)
    settings = {"data.pairs": 50, "steps": 6, "optimizer.warmup_steps": 1}
    one = Tuning("docstrings", texts, settings, ("test",), {"docstrings": "test"})
    other = Tuning("classic, a fold", texts, settings, ("test",), {"cranfield": "test", "vaswani": "test"})

    def train(module: str, recipe: str, path: Path, settings: dict[str, object], ranks: int) -> None:
        fake.train(module, recipe, path, settings)
        if path.parent.name == "cross_encoders":
            write_run(path, shards / "tokenizer.json", **FILTER)

    monkeypatch.setattr(negatives, "train", train)
    monkeypatch.setattr(negatives, "rank", lambda run, collection, splits: {split: [0.5, 0.25] for split in splits})
    negatives.run(NegativesBench([one, other], tmp_path), [1])
    tuned = {run.name: recipe for run, recipe in fake.finetuned.items() if run.parent.name == "tuned"}
    assert len(fake.recipes) == len(tuned) + 2 == len(KINDS) * 2 + 2
    by_kind = dict(zip(KINDS, (tuned[name] for name in tuned if "-1-docstrings" in name), strict=True))
    drawn = {kind: (r.method.negatives_per_query, r.method.hard_negatives) for kind, r in by_kind.items()}
    hard = {kind: (0, 1) for kind in KINDS if kind.startswith("BM25's")}
    assert drawn == {BATCH: (0, 0), RESAMPLED: (1, 0), OWN: (0, 1), "the batch's, ignoring": (0, 0), **hard}
    ignoring = {kind for kind, recipe in by_kind.items() if recipe.method.ignore_above}
    assert ignoring == {"BM25's, ignoring", "the batch's, ignoring"}
    assert {kind: r.refresh.every for kind, r in by_kind.items() if r.refresh} == {OWN: 4}
    folders = {kind: recipe.data.collection for kind, recipe in by_kind.items()}
    mined = {path.name: Collection.open(path).manifest for path in folders.values() if path != folder}
    unmined = {kind for kind, path in folders.items() if path == folder}
    assert unmined == {BATCH, RESAMPLED, "the batch's, ignoring"}
    commands = {name: manifest["command"] for name, manifest in mined.items()}
    assert {name: (about["margin"], about["skip"], len(about["mined_by"])) for name, about in commands.items()} == {
        "all-docstrings": (None, 0, 1),
        "below-docstrings": ("5%", 0, 1),
        "later-docstrings": (None, 30, 1),
        "filtered-docstrings": (0.0, 0, 1),
    }
    (by,) = commands["filtered-docstrings"]["mined_by"]
    assert by.startswith(f"bm25 > 100 {tmp_path}/cross_encoders/docstrings")
    assert mined["all-docstrings"]["mined"] == ["bm25"]
    excluded = {"method", "refresh", "run", "data"}
    assert len({recipe.model_dump_json(exclude=excluded) for recipe in by_kind.values()}) == 1
    negatives.run(NegativesBench([one, other], tmp_path), [1])  # measured already: trains nothing twice


@pytest.mark.parametrize("start", STARTS)
def test_every_ranker_is_trained_and_ranks(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTraining()
    asked: list[list[str]] = []

    def train(module: str, recipe: str, path: Path, settings: dict[str, object], ranks: int) -> None:
        """Leave a checkpoint, by which a later process knows that the run is finished."""
        fake.train(module, recipe, path, settings)
        (path / "checkpoints" / f"step-{fake.recipes[path].steps:08}").mkdir(parents=True)

    monkeypatch.setattr(rankers, "train", train)
    monkeypatch.setattr(rankers, "run_or_exit", lambda command: asked.append([*command]))
    monkeypatch.setattr(rankers, "encoder", lambda: tmp_path / MINILM)
    monkeypatch.setattr(rankers, "to_rank", lambda source, out: None)
    monkeypatch.setattr(rankers.material, "data_prep", lambda *arguments: None)
    monkeypatch.setattr(Bench, "by_index", lambda self, system, start, name, *options: Path(f"{name}.trec"))
    (tmp_path / "runs" / f"dense-{start}-2" / "checkpoints" / "step-00000001").mkdir(parents=True)  # unfinished
    file = Bench(tmp_path).results(start, 2)
    assert {run.name for run in fake.finetuned} == {f"{name}-{start}-2" for name in MODELS}
    for recipe in fake.finetuned.values():
        assert (recipe.seed, recipe.trunk, (recipe.init_from or Path()).name) == (2, None, start)
        assert getattr(recipe.method, "head", "mlm") in ("linear", "mlm")
    evaluate = asked[-1]
    assert evaluate[evaluate.index("--out") + 1] == str(file)
    given: dict[str, Given] = {}
    for option in (option for option in evaluate if option.startswith("--system=")):
        known = {name: system.expression for name, system in given.items()}
        system = parse(option.removeprefix("--system="), known)
        given[system.name] = system
    assert [*given][:3] == ["bm25", "dense", "colbert"]
    assert {f"{name}_bm25" for name, model in MODELS.items() if model.finds} < given.keys()
    Bench(tmp_path).tune_all([start], 2, at_once=4)
    assert {run.name for run in fake.finetuned} == {f"{name}-{start}-{seed}" for name in MODELS for seed in (1, 2)}
