"""The claims benchmark: every start is trained alike, with its own learning rate; measurements are kept."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.claims import pretraining
from benchmarks.claims.pretraining import (
    EMBEDDINGS,
    METHODS,
    PAIRS,
    RANDOM,
    RANKS,
    PretrainingBench,
)
from benchmarks.claims.tunings import RATES, Values
from benchmarks.common import training
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load

TOKENS = 1000


class Trained:
    """Fake training, which records recipes as the launcher would read them, and ranking: MRR is the learning rate."""

    def __init__(self, bench: PretrainingBench) -> None:
        self.bench = bench
        self.recipes: dict[Path, Recipe] = {}
        self.kept: dict[Path, Path] = {}  # from an embeddings-only folder to the run whose embeddings it has
        self.ranked: list[tuple[Path, str]] = []

    def train(self, module: str, recipe: str, run: Path, settings: dict[str, object], ranks: int) -> None:
        assert ranks == RANKS
        assert run not in self.recipes  # trained once
        kind = PretrainRecipe if module == "trainer.pretrain" else FinetuneRecipe
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        self.recipes[run] = load(kind, Path(recipe), overrides)

    def embeddings_only(self, run: Path, out: Path, seed: int) -> Path:
        self.kept[out] = run
        return out

    def rank(self, run: Path, collection: object, splits: list[str]) -> Values:
        self.ranked += [(run, split) for split in splits]
        rate = self.recipes[run].optimizer.lr
        return {split: [rate if split != "dev" else -abs(rate - 1e-3)] for split in splits}

    def finetuned(self) -> list[FinetuneRecipe]:
        return [recipe for recipe in self.recipes.values() if isinstance(recipe, FinetuneRecipe)]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    shards = {source: tmp_path / source for source in (*pretraining.material.MIXED, "reddit")}
    collections = [SimpleNamespace(directory=tmp_path / name) for name in ("docstrings", "classic")]
    found = Trained(PretrainingBench(pretraining.material.Material(shards, *collections), tmp_path, TOKENS))  # type: ignore[arg-type]
    for name in ("embeddings_only", "rank"):
        monkeypatch.setattr(pretraining, name, getattr(found, name))
    monkeypatch.setattr(training, "train", found.train)
    monkeypatch.setattr(pretraining, "tokens_a_step", lambda recipe: 300.0)
    return found


def test_each_rate_is_chosen_with_the_first_seed_and_off_the_ranked_queries(trained: Trained) -> None:
    values = trained.bench.ranked("mlm", 1)
    assert len(trained.finetuned()) == (len(PAIRS) + 2) * len(RATES)
    assert {recipe.data.pairs for recipe in trained.finetuned()} == {500, 1500, None}
    assert {recipe.optimizer.lr for recipe in trained.finetuned()} == set(RATES)
    chosen = {**dict.fromkeys(PAIRS, 1e-3), "cranfield": max(RATES), "vaswani": max(RATES)}
    assert {collection: set(mrr) for collection, mrr in values.items()} == {c: {rate} for c, rate in chosen.items()}
    of_test = [run for run, split in trained.ranked if split == "test" or split.endswith(("-first", "-second"))]
    assert len(of_test) == len(PAIRS) + 4  # docstrings, and two folds of two collections; only with the chosen rate
    trained.bench.ranked("mlm", 2)
    second = [recipe for recipe in trained.finetuned() if recipe.seed == 2]
    expected = [*[1e-3] * len(PAIRS), max(RATES), max(RATES)]
    assert sorted(recipe.optimizer.lr for recipe in second) == sorted(expected)
    row = trained.bench.row("mlm", [1, 2])
    assert list(row.rates.values()) == expected
    assert len(row.seeds) == 2


def test_starts_differ_in_what_they_keep(trained: Trained) -> None:
    names = (RANDOM, "mlm", f"mlm{EMBEDDINGS}", "ict")
    for name in names:
        trained.bench.ranked(name, 1)
    pretrained = {run for run, recipe in trained.recipes.items() if isinstance(recipe, PretrainRecipe)}
    runs = trained.bench.runs
    assert pretrained == {runs / "mlm-1", runs / "ict-1"}  # random weights and embeddings need no training of their own
    starts = {(recipe.init_from, recipe.random_weights) for recipe in trained.finetuned()}
    (embeddings,) = trained.kept
    assert trained.kept[embeddings] == runs / "mlm-1"
    assert starts == {(runs / "mlm-1", True), (runs / "mlm-1", False), (embeddings, False), (runs / "ict-1", False)}


def test_every_method_reads_the_tokens_of_the_budget(trained: Trained) -> None:
    for name in METHODS:
        trained.bench.ranked(name, 3)
    pretrained = [recipe for recipe in trained.recipes.values() if isinstance(recipe, PretrainRecipe)]
    third = [recipe for recipe in pretrained if recipe.seed == 3]
    assert len(third) == len(METHODS)
    assert {recipe.steps for recipe in pretrained} == {4}  # 4 x 300 tokens
    assert {recipe.checkpoint.every for recipe in pretrained} == {4}
    types = {recipe.method.name: recipe.trunk["model_type"] for recipe in pretrained if recipe.trunk}
    assert types.pop("clm") == "modernbert-decoder"
    assert set(types.values()) == {"modernbert"}
    read = {tuple(recipe.data.sources) for recipe in pretrained}
    assert read == {pretraining.material.MIXED, ("reddit",)}
    assert {recipe.optimizer.lr for recipe in trained.finetuned() if recipe.seed == 3} == {1e-3, max(RATES)}


def test_what_was_measured_is_not_measured_again(trained: Trained) -> None:
    first = trained.bench.ranked("ict", 1)
    before = len(trained.ranked)
    again = PretrainingBench(trained.bench.material, trained.bench.out, TOKENS)
    assert again.ranked("ict", 1) == first
    assert len(trained.ranked) == before
    more = PretrainingBench(trained.bench.material, trained.bench.out, 2 * TOKENS)
    more.ranked("ict", 1)
    assert len(trained.ranked) == 2 * before


def test_the_command_writes_the_tables_after_every_seed(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = {**dict.fromkeys(PAIRS, 1), "cranfield": 2, "vaswani": 2}  # the fake returns one query per split
    by_bm25 = {"whole text": {name: [0.5] * number for name, number in queries.items()}}
    monkeypatch.setattr(pretraining.material, "make", lambda data, out: trained.bench.material)
    monkeypatch.setattr(pretraining, "bm25", lambda tunings: by_bm25)
    pretraining.main(
        ["--methods", "mlm", RANDOM, "--seeds", "2", "--tokens", str(TOKENS), "--out", str(tmp_path / "out")]
    )
    printed = capsys.readouterr().out
    tables = (tmp_path / "out" / "claims.md").read_text()
    assert printed.endswith(tables)
    assert printed.count("cranfield, 2 queries\n") == 2  # after each of the two seeds
    assert tables.count("| mlm | 0.001 | 0.0010 | 0.0010 to 0.0010 | 0.0010, 0.0010 |") == len(PAIRS)
    assert tables.count("| BM25, whole text | | 0.5000 |") == len(queries)
    assert "; 0 left to measure" in printed
