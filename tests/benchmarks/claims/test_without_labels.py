"""The demo without labels: what each row is trained on, from what, and how it is ranked."""

from pathlib import Path

import pytest

from benchmarks.claims import without_labels
from benchmarks.claims.without_labels import COLLECTION, DEMO, LABELS, RATES, ROWS, TAUGHT, WRITTEN, Bench
from benchmarks.claims.written import Data
from benchmarks.common import training
from deepsiam.data_prep.common.errors import InputError
from tests.benchmarks.fake_training import FakeTraining

LIKED = RATES[1]
LABELLED, ASKED = Data(COLLECTION, Path("label_vectors")), Data(Path("mined"), Path("vectors"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    trained = FakeTraining()
    monkeypatch.setattr(training, "train", trained.train)
    monkeypatch.setattr(without_labels.Collection, "open", lambda folder: None)
    monkeypatch.setattr(
        without_labels,
        "rank",
        lambda run, texts, splits: {split: [trained.recipes[run].optimizer.lr == LIKED] for split in splits},
    )
    return trained


def test_without_a_writer_labels_and_vectors_are_compared(
    fake: FakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(without_labels, "run_or_exit", lambda words: asked.append([*words]))
    bench = Bench(tmp_path, {LABELS: LABELLED})
    assert bench.rows == [name for name in ROWS if "written" not in name]
    for seed in (1, 2):
        bench.results(seed)
    tried = sorted((recipe.seed, recipe.optimizer.lr) for recipe in fake.finetuned.values())
    assert tried == sorted(6 * [*((1, rate) for rate in RATES), (2, LIKED)])  # the rate is chosen with the first seed
    by_start = {(Path(r.init_from), r.data.pairs, r.method.pooling) for r in fake.finetuned.values()}
    assert by_start == {(DEMO, 500, "cls"), (DEMO, 2000, "cls"), (TAUGHT, 500, "mean"), (TAUGHT, 2000, "mean")}
    assert {recipe.data.collection for recipe in fake.finetuned.values()} == {COLLECTION}
    beside = {recipe.data.pairs for recipe in fake.finetuned.values() if recipe.data.teacher == LABELLED.teacher}
    assert beside == {500, 2000}
    for seed, words in zip((1, 2), asked, strict=True):
        systems = [word for before, word in zip(words, words[1:], strict=False) if before == "--system"]
        names = ["vectors", *bench.rows]
        assert systems[1 : 1 + len(names)] == [f"vectors={TAUGHT}"] + [
            f"{name}={tmp_path}/{name}-{LIKED:g}-{seed}" for name in bench.rows
        ]
        assert systems[1 + len(names) :] == [f"{name}_fused=fuse(bm25, {name})" for name in names]
    Bench(tmp_path, {LABELS: LABELLED})._rate("labels500")  # measured before: trains nothing twice


def test_written_queries_come_before_labels_and_have_the_teacher_beside_them(
    fake: FakeTraining, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, {LABELS: LABELLED, WRITTEN: ASKED})
    assert bench.rows == [*ROWS]
    runs = [bench.tuned(name, 2) for name in ("written_then_labels500", "written")]
    last, alone = (fake.finetuned[run] for run in runs)
    before = fake.finetuned[Path(str(last.init_from))]
    assert (before.seed, Path(str(before.init_from))) == (2, TAUGHT)
    assert (before.data.collection, before.data.teacher, before.data.pairs) == (*ASKED, None)
    assert before.method.losses == {"softmax": 1.0, "vectors": 5.0, "batch_kl": 1.0}
    assert (last.data.collection, last.data.teacher, last.data.pairs) == (*LABELLED, 500)
    assert last.method.losses == before.method.losses
    assert (alone.data.collection, alone.data.teacher, Path(str(alone.init_from))) == (Path("mined"), None, DEMO)


@pytest.mark.parametrize("arguments", [[], ["--writer", "model"]])
def test_what_is_missing_is_named(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments:
        TAUGHT.mkdir(parents=True)
    with pytest.raises((SystemExit, InputError)) as error:
        without_labels.main(arguments)
    assert getattr(error.value, "code", 2) == 2
    said = "these a writer: give both" if arguments else f"{TAUGHT}: no such run; run: make demo-documents"
    assert said in capsys.readouterr().err
