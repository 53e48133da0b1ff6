"""The benchmark of stages: each is left out once, on the same data, from the stage before; measurements are kept."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.claims import stages
from benchmarks.claims.matching_collections import CLASSIC
from benchmarks.claims.material import MIXED, Material
from benchmarks.claims.stages import ALL, CHAINS, COLLECTIONS, DOCSTRINGS, RANKS, StagesBench, table
from benchmarks.claims.tunings import RATES, Values
from benchmarks.common import training
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


class Trained:
    """Fake training, which records recipes as the launcher would read them, and ranking: MRR is the learning rate."""

    def __init__(self) -> None:
        self.recipes: dict[str, Recipe] = {}
        self.ranked: list[tuple[str, str]] = []

    def train(self, module: str, recipe: str, run: Path, settings: dict[str, object], ranks: int) -> None:
        assert ranks == RANKS
        assert run.name not in self.recipes  # trained once
        kind = PretrainRecipe if module == "trainer.pretrain" else FinetuneRecipe
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        self.recipes[run.name] = load(kind, Path(recipe), overrides)

    def rank(self, run: Path, collection: object, splits: list[str]) -> Values:
        self.ranked += [(run.name, split) for split in splits]
        return {split: [self.recipes[run.name].optimizer.lr] * 2 for split in splits}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    found = Trained()
    monkeypatch.setattr(stages, "rank", found.rank)
    monkeypatch.setattr(training, "train", found.train)
    monkeypatch.setattr(stages, "tokens_a_step", lambda recipe: 300.0)
    return found


@pytest.fixture
def bench(trained: Trained, tmp_path: Path) -> StagesBench:
    shards = {source: tmp_path / source for source in (*MIXED, "reddit")}
    docstrings, classic = (SimpleNamespace(directory=tmp_path / name) for name in ("docstrings", "classic"))
    pairs = {source: tmp_path / "pairs" / source for source in shards}
    return StagesBench(Material(shards, docstrings, classic), pairs, classic, tmp_path, 1000)  # type: ignore[arg-type]


def test_every_stage_starts_from_the_one_before_and_each_is_left_out_once(bench: StagesBench, trained: Trained) -> None:
    for row in CHAINS:
        bench.ranked(row, 1)
    starts = {name: recipe.init_from and recipe.init_from.name for name, recipe in trained.recipes.items()}
    assert {name: start for name, start in starts.items() if "mix" not in name} == {
        "text-1": None,
        "pairs-1": None,
        "text-pairs-1": "text-1",
    }
    for before in ("text-pairs", "text", "pairs"):
        assert starts[f"{before}-mix-first-{max(RATES):g}-1"] == f"{before}-1"
    alone = trained.recipes[f"mix-first-{max(RATES):g}-1"]
    assert isinstance(alone, FinetuneRecipe)
    assert (alone.init_from and alone.init_from.name, alone.random_weights) == ("text-1", True)
    pretrained = [recipe for recipe in trained.recipes.values() if isinstance(recipe, PretrainRecipe)]
    assert {recipe.steps for recipe in pretrained} == {4}  # 4 x 300 tokens


def test_the_rate_is_chosen_off_the_ranked_queries_and_only_for_the_mix(bench: StagesBench, trained: Trained) -> None:
    values = bench.ranked(ALL, 1)
    assert {name: set(of) for name, of in values.items()} == dict.fromkeys(COLLECTIONS, {max(RATES)})
    assert {name: len(of) for name, of in values.items()} == {DOCSTRINGS: 2, **dict.fromkeys(CLASSIC, 4)}
    tested = {(run, split) for run, split in trained.ranked if not split.endswith("dev")}
    for fold, other in (("first", "second"), ("second", "first")):
        splits = ["test", *(f"{name}-{fold}" for name in CLASSIC)]
        run = f"text-pairs-mix-{other}-{max(RATES):g}-1"
        assert {split for name, split in tested if name == run} == set(splits)
        recipe = trained.recipes[run]
        assert isinstance(recipe, FinetuneRecipe)
        assert [source.split for source in recipe.data.sources.values()] == [other, "train"]
    assert len({run for run, _ in tested}) == 2
    before = len(trained.recipes)
    bench.ranked("without the mix", 1)
    assert len(trained.recipes) == before  # it is a part of all stages


def test_the_table_has_means_over_seeds_and_p_values_against_all_stages() -> None:
    queries = 40
    rows = {row: [dict.fromkeys(COLLECTIONS, [mrr] * queries) for mrr in (0.1, 0.3)] for row in CHAINS}
    rows["the mix alone"] = [dict.fromkeys(COLLECTIONS, [0.1] * queries)] * 2
    head, _, *lines = table(rows, dict.fromkeys(COLLECTIONS, [0.5] * queries)).splitlines()
    assert (
        head == "| stages | docstrings, 40 queries | cranfield, 40 queries | cacm, 40 queries | vaswani, 40 queries |"
    )
    assert lines[0] == "| all stages" + " | 0.2000" * 4 + " |"
    assert lines[1] == "| without text" + " | 0.2000 (p = 1.0000)" * 4 + " |"
    assert lines[4].startswith("| the mix alone | 0.1000 (p = 0.0001) |")
    assert lines[5] == "| BM25" + " | 0.5000" * 4 + " |"


def test_the_page_shows_what_was_measured(bench: StagesBench, trained: Trained, tmp_path: Path) -> None:
    shutil.copy(ROOT / "benchmarks" / "results" / "stages_results.json", tmp_path / "stages.json")
    kept = StagesBench(bench.material, bench.pairs, bench.classic, tmp_path, 4_000_000)
    rows = {row: [kept.ranked(row, seed) for seed in (1, 2, 3)] for row in CHAINS}
    assert not trained.recipes  # nothing is measured again
    page = (ROOT / "docs" / "results.md").read_text()
    for name, seeds in rows.items():
        (cells,) = re.findall(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)
        shown = [cell.split()[0] for cell in cells.split(" | ")]
        assert shown == [f"{np.mean([seed[of] for seed in seeds]):.4f}" for of in COLLECTIONS]
