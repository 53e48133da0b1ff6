"""A published encoder as its own teacher: what each row is trained on, from what, and on which queries it is tested."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims import own_teacher
from benchmarks.claims.material import FOLDS
from benchmarks.claims.own_teacher import LABELS, PUBLISHED, RATES, ROWS, SETTINGS, WRITTEN, Bench, Data
from benchmarks.common import training
from tests.benchmarks.fake_training import FakeTraining

FOLDER = Path("published")
DATA = {LABELS: Data(Path("classic"), Path("label_vectors")), WRITTEN: Data(Path("mined"), Path("vectors"))}
LIKED = RATES[1]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """Runs that are recorded, not trained: with the rate LIKED one ranks perfectly, else not at all."""
    fake = FakeTraining()

    def rank(run: Path, texts: object, splits: list[str]) -> dict[str, list[float]]:
        good = 0.5 if run == FOLDER else float(fake.recipes[run].optimizer.lr == LIKED)
        return {split: [good, good] for split in splits}

    monkeypatch.setattr(training, "train", fake.train)
    monkeypatch.setattr(own_teacher, "encoder", lambda: FOLDER)
    monkeypatch.setattr(own_teacher, "rank", rank)
    monkeypatch.setattr(own_teacher.Collection, "open", lambda folder: None)
    return fake


@pytest.fixture
def bench(fake: FakeTraining, tmp_path: Path) -> Bench:
    return Bench(tmp_path, DATA)


def test_every_query_is_ranked_by_a_run_of_the_other_half_at_the_best_rate(bench: Bench, fake: FakeTraining) -> None:
    assert bench.rows == [PUBLISHED, *ROWS]
    for row in bench.rows:
        assert bench.values(row, 2) == 4 * [0.5 if row == PUBLISHED else 1.0]
    runs = fake.finetuned.values()
    labelled = [recipe for recipe in runs if recipe.data.collection == DATA[LABELS].collection]
    assert {recipe.data.split for recipe in labelled} == {*FOLDS}
    tested = {(recipe.seed, recipe.optimizer.lr) for recipe in runs}
    assert tested == {*((1, rate) for rate in RATES), (2, LIKED)}
    assert {recipe.steps for recipe in runs} == {SETTINGS["steps"]}


def test_labels_on_a_half_train_on_the_other(bench: Bench, fake: FakeTraining) -> None:
    for fold, other in zip(FOLDS, reversed(FOLDS), strict=True):
        run = bench._tuned("labels", fold, 1, LIKED)
        assert fake.finetuned[run].data.split == other


def test_the_teacher_is_the_published_encoder_itself_and_labels_come_last(bench: Bench, fake: FakeTraining) -> None:
    run = bench._tuned("these, then labels, own vectors beside", "first", 1, LIKED)
    last = fake.finetuned[run]
    before = fake.finetuned[Path(str(last.init_from))]
    assert (before.data.collection, before.data.teacher) == DATA[WRITTEN]
    assert (last.data.collection, last.data.teacher) == DATA[LABELS]
    assert str(before.init_from) == str(FOLDER)
    assert last.method.losses == before.method.losses == {"softmax": 1.0, "vectors": 5.0, "batch_kl": 1.0}
    assert last.method.teacher_width is None


def test_without_a_writer_its_rows_are_left_out(bench: Bench, tmp_path: Path) -> None:
    assert Bench(tmp_path, {LABELS: DATA[LABELS]}).rows == [PUBLISHED, "labels", "labels, own vectors beside"]


def test_the_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_teacher, "Bm25Ranker", lambda texts: None)
    monkeypatch.setattr(own_teacher, "evaluate_split", lambda ranker, split: split)
    monkeypatch.setattr(own_teacher, "mrr", lambda split: [0.25, 0.75])
    lines = own_teacher.table(bench, [1, 2]).splitlines()
    assert lines[2:4] == ["| BM25 | 0.5000 | | |", "| published | 0.5000 | 0.5000 |  |"]
    p = own_teacher.paired_permutation_test(np.ones(4), np.full(4, 0.5))
    assert lines[4] == f"| labels | 1.0000 | 1.0000, 1.0000 | {p:.4f} |"
    assert len(lines) == 4 + len(ROWS)
