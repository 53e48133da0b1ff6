"""Every recipe of a paper, trained on a sample in the very format that it names, and evaluated."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from data_prep.__main__ import main as data_prep
from tests import toy
from tests.trainer import paper_samples as samples
from tests.trainer.many_runs import train
from tests.trainer.paper_samples import Writer
from trainer import evaluate
from trainer.checkpoints.load import load_trained
from trainer.recipe.schema import FinetuneRecipe, kind_of
from trainer.recipe.yaml_file import read

pytestmark = pytest.mark.slow  # trains twenty models for two steps each in one launch: half a minute

RECIPES = toy.ROOT / "recipes"
TRUNK = {**toy.TRUNK, "hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 520, "type_vocab_size": 2}
STEPS = 2
# of the dialogue recipes one trains on each format
FORMATS: dict[str, tuple[str, Writer]] = {
    "passages": ("msmarco", samples.msmarco),
    "documents": ("msmarco", samples.msmarco_documents),
    "mind": ("mind", samples.mind),
    "dpr": ("dpr", samples.dpr),
    "convai2": ("convai2", samples.convai2),
    "dstc7": ("dstc7", samples.dstc7),
    "ubuntu": ("ubuntu", samples.ubuntu),
    "wikipedia": ("wikipedia_search", samples.wikipedia),
    "hotpot": ("answer_selection", samples.hotpot),
    "quasar": ("answer_selection", samples.quasar),
    "mnli": ("nli", samples.mnli),
    "qqp": ("nli", samples.qqp),
    "beir": ("beir", samples.beir),
}


class Case(NamedTuple):
    """A recipe, its data, what its own comments say to change for them, and how the run is evaluated."""

    recipe: str
    data: str
    changes: dict[str, Any] = {}
    options: tuple[str, ...] = ()


LISTS, CLASSES, POOL = ("--candidates",), ("--classes",), ("--bm25",)
CASES = {
    "finetune": Case("finetune", "beir", options=POOL),
    "siamese_small": Case("siamese_small", "beir", options=POOL),
    "colbert_small": Case("colbert_small", "beir", options=POOL),
    "poly_encoder_small": Case("poly_encoder_small", "beir", options=POOL),
    "cross_encoder_small": Case("cross_encoder_small", "beir", options=POOL),
    "cross_thought_answers_small": Case("cross_thought_answers_small", "beir", options=POOL),
    "dpr": Case("dpr", "dpr", options=LISTS),
    "repbert": Case("repbert", "passages", options=POOL),
    "monobert": Case("monobert", "passages", options=POOL),
    "colbert": Case("colbert", "passages", options=POOL),
    "seed_msmarco_passage": Case("seed_msmarco_passage", "passages", options=POOL),
    "seed_msmarco_document": Case("seed_msmarco_document", "documents", options=POOL),
    "seed_mind": Case("seed_mind", "mind", options=LISTS),
    "dialogue_bi": Case("dialogue_bi", "convai2", options=LISTS),
    "dialogue_poly16": Case("dialogue_poly16", "dstc7", options=LISTS),
    "dialogue_poly64": Case("dialogue_poly64", "ubuntu", options=LISTS),
    "dialogue_poly360": Case("dialogue_poly360", "convai2", options=LISTS),
    "dialogue_cross": Case("dialogue_cross", "convai2", {"hard_negatives": 19, "negatives_per_query": 0}, LISTS),
    "dialogue_bi, articles": Case("dialogue_bi", "wikipedia", {"kept_of_query": "start"}, POOL),
    "cross_thought_answers": Case("cross_thought_answers", "quasar", options=LISTS),
    "cross_thought_answers, HotpotQA": Case("cross_thought_answers", "hotpot", options=LISTS),
    "cross_thought_pairs": Case("cross_thought_pairs", "mnli", options=CLASSES),
    "cross_thought_pairs, QQP": Case("cross_thought_pairs", "qqp", {"classes": 2}, CLASSES),
}


@pytest.fixture(scope="module")
def runs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection of each format, by its name, and a run of each case."""
    folder = tmp_path_factory.mktemp("papers")
    for name, (format, write) in FORMATS.items():
        raw = folder / f"raw-{name}"
        raw.mkdir()
        inputs = ["collection", format, *write(raw)]
        assert not data_prep([*inputs, "--out", str(folder / name), "--tokenizer", str(shards / "tokenizer.json")])
    cases = [[recipe(folder, name, case)] for name, case in CASES.items()]
    train(1, cases, folder)
    return folder


def recipe(folder: Path, name: str, case: Case) -> Path:
    """The recipe itself with a tiny encoder, small batches and few steps; its method's keys stay."""
    return toy.write_recipe(
        folder / f"{name}.yaml",
        extends=str(RECIPES / f"{case.recipe}.yaml"),
        run=str(folder / f"run-{name}"),
        init_from=None,
        trunk=TRUNK,
        steps=STEPS,
        log_every=1,
        deepspeed="cpu",
        data={"collection": str(folder / case.data), "pairs": None, "lanes": 2, "window": 2, "workers": 0},
        batch={"size": 4, "micro": 2},
        optimizer={"warmup_steps": 1},
        checkpoint={"every": STEPS},
        method=case.changes,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_papers_recipe_trains_on_its_own_format_and_is_evaluated(runs: Path, name: str, tmp_path: Path) -> None:
    case, run = CASES[name], runs / f"run-{name}"
    trained = load_trained(run)
    term = trained.method.loss  # type: ignore[attr-defined]
    losses = toy.scalars(run, f"loss/{term}")
    assert sorted(losses) == [1, 2]
    assert all(0 < loss < 100 for loss in losses.values())
    out = tmp_path / "results.json"
    arguments = ["--collection", str(runs / case.data), "--split", "dev", f"--model=m={run}", "--out", str(out)]
    evaluate.main([*arguments, *case.options])
    results = json.loads(out.read_text())
    assert all(0 <= value <= 1 for value in results["m"].values())
    assert results["lists" if "--candidates" in case.options else "pairs" if "--classes" in case.options else "queries"]


def test_every_recipe_of_fine_tuning_is_here() -> None:
    finetuned = {path.stem for path in RECIPES.glob("*.yaml") if kind_of(read(path)) is FinetuneRecipe}
    named = {name for name in finetuned if not name.startswith(("demo_", "minilm_"))}  # the README's test has these
    assert named == {case.recipe for case in CASES.values()}
