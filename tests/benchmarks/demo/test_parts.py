"""What each part of the demo contributes: starts differ only in pre-training, the table shows what was measured."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.demo import parts
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.trainer.runs import write_run

Recipes = dict[Path, Recipe]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Recipes:
    """The recipe of every training as the launcher would read it, by run folder."""
    recipes: Recipes = {}

    def train(module: str, recipe: str, run: Path, settings: dict[str, object]) -> None:
        kind = PretrainRecipe if module == "trainer.pretrain" else FinetuneRecipe
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        recipes[run] = load(kind, Path(recipe), overrides)

    monkeypatch.setattr(parts, "train", train)
    monkeypatch.setattr(parts, "embeddings_only", lambda run, out, seed: out)
    return recipes


def test_the_starts_differ_in_pre_training_only(trained: Recipes) -> None:
    starts = parts.pretrained()
    runs = parts.tuned(starts)
    assert set(trained) == {*starts.values(), *(run for by_rate in runs.values() for run in by_rate.values())}
    alone, after_seed = (trained[starts[name]].model_dump() for name in ("ICT", "SEED, then ICT"))
    assert (alone.pop("init_from"), after_seed.pop("trunk")) == (None, None)
    assert alone.pop("trunk") == trained[starts["SEED"]].model_dump()["trunk"]
    assert after_seed.pop("init_from") == starts["SEED"]
    for recipe in (alone, after_seed):
        recipe.pop("run")
    assert alone == after_seed
    for name, by_rate in runs.items():
        for rate, run in by_rate.items():
            recipe = trained[run]
            assert isinstance(recipe, FinetuneRecipe)
            assert recipe.optimizer.lr == rate
            assert recipe.random_weights is (name == "random weights")
            if name in starts:
                assert recipe.init_from == starts[name]
    assert {tuple(by_rate) for by_rate in runs.values()} == {parts.RATES}


def test_the_runs_of_the_demo_are_taken_as_they_are(trained: Recipes) -> None:
    parts.tuned(parts.pretrained())
    recipes = {
        "seed": load(PretrainRecipe, Path(parts.SEED)),
        "ict": load(PretrainRecipe, Path(parts.ICT)),
        "from_random": load(FinetuneRecipe, Path(parts.SIAMESE_RANDOM)),
        "from_seed": load(FinetuneRecipe, Path(parts.SIAMESE)),
    }
    for name, recipe in recipes.items():
        assert trained[parts.DEMO / name] == recipe


def test_the_run_is_chosen_on_the_development_split(
    shards: Path, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 16}
    runs = {
        rate: write_run(tmp_path / str(seed), shards / "tokenizer.json", seed=seed, **method)
        for seed, rate in enumerate((1e-3, 3e-4))
    }
    dev = {1e-3: 0.1, 3e-4: 0.2}
    rate_of = {str(run): rate for rate, run in runs.items()}

    def evaluate(ranker: ModelRanker, split: str) -> SimpleNamespace:
        assert split == "dev"
        return SimpleNamespace(means={"mrr@10": dev[rate_of[str(ranker.loaded.recipe.run)]]})  # type: ignore[attr-defined]

    monkeypatch.setattr(parts, "evaluate_split", evaluate)
    row = parts.measured(Collection.open(toy_collection), runs)
    assert (row["lr"], row["dev_mrr@10_by_lr"]) == (3e-4, {"0.001": 0.1, "0.0003": 0.2})
    bm25 = {"mrr@10": 0.5, "recall@100": 0.75}
    lines = parts.table({"SEED": {**row, "weight": 0.6, "bm25": bm25}}).splitlines()
    assert lines[2].startswith(f"| SEED | 0.0003 | 0.2000 | {row['test']['mrr@10']:.4f} | ")
    assert lines[2].endswith(f" | {row['fused']['mrr@10']:.4f} (0.6) |")
    assert lines[3] == "| BM25 | | | 0.5000 | 0.7500 | |"
