"""Claims about negatives, rankers and SEED's figures: their runs differ only in what they compare."""

from pathlib import Path

import pytest

from benchmarks.claims import material, negatives, rankers, seed_figures
from benchmarks.claims.negatives import BATCH, KINDS, OWN, NegativesBench
from benchmarks.claims.negatives import RANDOM as RESAMPLED
from benchmarks.claims.rankers import MINILM, MODELS, STARTS, Bench, in_thirds, to_rank
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


def read_qrels(folder: Path, split: str) -> list[str]:
    return (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]


def test_few_queries_rank_few_documents_their_own_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = {"train": 0, "dev": 9, "test": 18}  # nine queries a split, each with two documents
    judged = {
        split: "".join(f"q{i}\td{2 * i + j}\t1\n" for i in range(first, first + 9) for j in range(2))
        for split, first in firsts.items()
    }
    source, out = (
        toy.write_beir(tmp_path / "source", {f"d{i}": "b" for i in range(60)}, {"q0": "b"}, **judged),
        tmp_path,
    )
    material.write(source / "pools" / "test.txt", (f"d{i}" for i in range(40)))
    monkeypatch.setattr(rankers, "QUERIES", {"dev": 3, "test": 4})
    monkeypatch.setattr(rankers, "DOCUMENTS", 20)
    to_rank(source, out)
    kept = {split: [row.split("\t") for row in read_qrels(out, split)] for split in rankers.QUERIES}
    assert {split: len({row[0] for row in rows}) for split, rows in kept.items()} == {"dev": 3, "test": 4}
    ranked = [line["_id"] for line in material.json_lines(out / "corpus.jsonl")]
    assert len(set(ranked)) == len(ranked) == 20
    assert {row[1] for rows in kept.values() for row in rows} < set(ranked)
    assert not (out / "qrels" / "train.tsv").exists()


def test_every_third_query_chooses_the_weights(tmp_path: Path) -> None:
    rows = [f"q{i}\td{j}\t1" for i in range(7) for j in range(2)]
    source = toy.write_beir(tmp_path / "source", {"d0": "a"}, {"q0": "a"}, train="\n".join([*rows, ""]))
    in_thirds(source, tmp_path)
    assert read_qrels(tmp_path, "dev") == rows[4:6] + rows[10:12]
    assert sorted(read_qrels(tmp_path, "dev") + read_qrels(tmp_path, "test")) == rows


def test_the_runs_of_seeds_figures_differ_in_what_the_decoder_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeTraining()
    commands: list[list[str]] = []
    monkeypatch.setattr(seed_figures, "train", fake.train)
    monkeypatch.setattr(seed_figures, "run_or_exit", commands.append)
    runs = seed_figures.pretrained(tmp_path / "shards", tmp_path, 100)
    recipes = {name: fake.pretrained[run] for name, run in runs.items()}
    for attention, window in (("window 2", 2), ("whole past", "all")):
        for name in seed_figures.SETTINGS:
            recipe = recipes[f"{name}, {attention}"]
            method = recipe.method
            assert (method.name, method.decoder_layers, method.window) == ("seed", 3, window)
            assert method.freeze_encoder is name.endswith("RoBERTa-CLS") is (recipe.init_from == runs["mlm"])
            assert method.cls is not name.startswith("no-CLS")
        assert recipes[f"no-CLS, {attention}"].method.loss_weights.mlm == 0
    shared = {recipe.model_dump_json(include={"steps", "batch", "optimizer", "data"}) for recipe in recipes.values()}
    assert len(shared) == 1
    seed_figures.draw(runs, tmp_path / "held_out", tmp_path)
    drawn = {Path(command[command.index("--out") + 1]).stem: command for command in commands}
    restricted, full = (f"no-CLS={runs[f'no-CLS, {attention}']}" for attention in seed_figures.ATTENTION)
    assert restricted in drawn["figure_3b"]
    assert full in drawn["figure_3a"]
    assert "cosine" in drawn["figure_4"]
    assert {f"masked LM alone={runs['mlm']}", "loss/mlm"} < set(drawn["figure_5"])
