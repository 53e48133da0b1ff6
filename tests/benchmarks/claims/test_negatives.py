"""The benchmark of negatives: the settings of its runs, mined collections, and its table."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims import negatives
from benchmarks.claims.negatives import BATCH, KINDS, OWN, RANDOM, NegativesBench, run, table
from benchmarks.claims.tunings import COLLECTIONS, Tuning
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.trainer.runs import write_run


@pytest.fixture
def bench(toy_collection: Path, tmp_path: Path) -> NegativesBench:
    opened = Collection.open(toy_collection)
    settings = {"data.pairs": 50, "steps": 6, "optimizer.warmup_steps": 1}
    one = Tuning("docstrings", opened, settings, ("test",), {"docstrings": "test"})
    other = Tuning("classic, a fold", opened, settings, ("test",), {"cranfield": "test", "vaswani": "test"})
    return NegativesBench([one, other], tmp_path)


def test_runs_differ_in_their_negatives_alone(
    bench: NegativesBench, toy_collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes: dict[Path, FinetuneRecipe] = {}

    def trained(module: str, recipe: str, path: Path, settings: dict[str, object], ranks: int) -> None:
        overrides = [f"{key}={value}" for key, value in {**settings, "run": path}.items()]
        recipes[path] = load(FinetuneRecipe, Path(recipe), overrides)
        if recipes[path].method.name == "cross_encoder":
            keys = {"loss": "binary", "max_query_tokens": 8, "max_document_tokens": 16}
            write_run(path, toy_collection / "tokenizer.json", name="cross_encoder", **keys)

    monkeypatch.setattr(negatives, "train", trained)
    monkeypatch.setattr(negatives, "rank", lambda run, collection, splits: {split: [0.5, 0.25] for split in splits})
    run(bench, [1, 2])
    filters = [recipes.pop(path) for path in list(recipes) if path.parent.name == "cross_encoders"]
    assert len(filters) == 2
    assert len(recipes) == len(KINDS) * 2 * 2
    of_seed_1 = [recipe for path, recipe in recipes.items() if "-1-docstrings" in path.name]
    settings = {kind: recipe.method for kind, recipe in zip(KINDS, of_seed_1, strict=True)}
    drawn = {kind: (m.negatives_per_query, m.hard_negatives) for kind, m in settings.items()}
    hard = {kind: (0, 1) for kind in KINDS if kind.startswith("BM25's")}
    assert drawn == {BATCH: (0, 0), RANDOM: (1, 0), OWN: (0, 1), "the batch's, ignoring": (0, 0), **hard}
    assert {kind for kind, m in settings.items() if m.ignore_above} == {"BM25's, ignoring", "the batch's, ignoring"}
    by_kind = dict(zip(KINDS, of_seed_1, strict=True))
    assert {kind: r.refresh.every for kind, r in by_kind.items() if r.refresh} == {OWN: 4}
    unmined = {kind for kind, recipe in by_kind.items() if recipe.data.collection == toy_collection}
    assert unmined == {BATCH, RANDOM, "the batch's, ignoring"}
    commands = {
        recipe.data.collection.name: Collection.open(recipe.data.collection).manifest["command"]
        for kind, recipe in by_kind.items()
        if kind not in unmined
    }
    asked = {name: (about["margin"], about["skip"], len(about["mined_by"])) for name, about in commands.items()}
    assert asked == {
        "all-docstrings": (None, 0, 1),
        "below-docstrings": ("5%", 0, 1),
        "later-docstrings": (None, 30, 1),
        "filtered-docstrings": (0.0, 0, 1),
    }
    assert commands["filtered-docstrings"]["mined_by"][0].startswith(
        f"bm25 > 100 {bench.out}/cross_encoders/docstrings"
    )
    excluded = {"method", "refresh", "run", "data"}
    assert len({recipe.model_dump_json(exclude=excluded) for recipe in of_seed_1}) == 1
    mined = Collection.open(of_seed_1[2].data.collection)
    assert mined.manifest["mined"] == ["bm25"]
    assert of_seed_1[3].data.collection == mined.directory
    recipes.clear()
    run(NegativesBench(bench.tunings, bench.out), [1, 2])  # everything has been measured
    assert not recipes


def test_the_table_has_means_seeds_and_p_values() -> None:
    rng = np.random.default_rng(0)
    values = {
        kind: {seed: {name: (rng.random(40) + i / 4).tolist() for name in COLLECTIONS} for seed in (1, 2)}
        for i, kind in enumerate(KINDS)
    }
    head, _, *rows = table(values).splitlines()
    assert head == f"| negatives | {' | '.join(COLLECTIONS)} |"
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(KINDS)
    own, base = (np.mean([values[kind][seed]["vaswani"] for seed in (1, 2)], axis=0) for kind in (OWN, BATCH))
    last = rows[list(KINDS).index(OWN)].split(" | ")[-1]
    assert last.startswith(f"{own.mean():.4f} ({np.mean(values[OWN][1]['vaswani']):.4f}, ")
    assert f"p = {paired_permutation_test(own, base):.4f}" in last
    assert not re.search("p =", rows[0])
