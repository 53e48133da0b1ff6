"""Every fine-tuning recipe of a paper: the commands in its comment, training its small form, evaluation.

The data are small files in the papers' formats. Each X_small.yaml is trained as it is, but with a tiny encoder and few
steps; it is X.yaml with other sizes. Recipes without one of their own are trained with the sizes below.
"""

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.models.matching.duobert import DuobertConfig
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.matching.pair_model import PairModelConfig
from deepsiam.models.matching.tilde import TildeConfig
from deepsiam.models.registry import MATCHING
from deepsiam.trainer import evaluate
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load, read
from tests import toy
from tests.data_prep import raw
from tests.trainer.launches.papers_samples import SAMPLES
from tests.trainer.many_runs import train

pytestmark = pytest.mark.slow  # real processes: all runs are one launch

RECIPES = toy.ROOT / "recipes"
OTHERS = {"mix_small", "demo_siamese", "demo_siamese_random", "demo_colbert"}  # of `make demo` and docs/mixes.md
PUBLISHED = {"minilm_siamese", "demo_published"}  # from a downloaded encoder
TRUNK = {**toy.TRUNK, "num_hidden_layers": 1, "max_position_embeddings": 640, "initializer_range": 0.2}
DECODER = {**TRUNK, "is_decoder": True, "max_position_embeddings": 4096}
STEPS = 2


@dataclass(frozen=True)
class Case:
    """A run of a recipe and how it is evaluated; `named` has the overrides that the comments give for these data."""

    recipe: str
    collection: str
    named: tuple[str, ...] = ()
    how: str = ""  # an option of trainer.evaluate; without it, over the whole pool
    split: str = "dev"
    decoder: bool = False


RERANK = (PairModelConfig, DuobertConfig, TildeConfig, LabelRankerConfig)  # cannot search
LISTS, CLASSES = "--candidates", "--classes"
TWO = ("method.classes=2",)
FEW_LABELS = ("method.labels=[a,b,c,d,e,f,g,h]", "method.candidates.per_query=8")
CASES = {
    "finetune": Case("finetune", "data/mine"),
    "dpr": Case("dpr_small", "data/nq"),
    "repbert": Case("repbert_small", "data/msmarco_qrels"),
    "monobert": Case("monobert_small", "data/msmarco_passage"),
    "splade": Case("splade_small", "data/msmarco_passage"),
    "splade_doc": Case("splade_doc_small", "data/msmarco_passage"),
    "splade_lexical": Case("splade_lexical_small", "data/msmarco_passage"),
    "tildev2": Case("tildev2_small", "data/msmarco_passage", ("method.hard_negatives=2",)),
    "tilde": Case("tilde_small", "data/msmarco_passage"),
    "sparse_small": Case("sparse_small", "data/mine"),
    "duobert": Case("duobert_small", "data/msmarco_passage"),
    "label_ranker": Case("label_ranker_small", "data/msmarco_64way_zephyr", FEW_LABELS, decoder=True),
    "yes_no": Case("yes_no_small", "data/msmarco_passage_qwen3", ("method.labels=[y,n]",), decoder=True),
    "colbert": Case("colbert", "data/msmarco_triples", how=LISTS, split="train"),
    "colbertv2": Case("colbertv2_small", "data/msmarco_64way"),
    "colbert_zero_labels": Case("colbert_zero_labels_small", "data/msmarco_triples", how=LISTS, split="train"),
    "colbert_zero": Case("colbert_zero_small", "data/msmarco_64way"),
    "bge": Case("bge_small", "data/scored"),
    "seed_msmarco_passage": Case("seed_msmarco_passage_small", "data/msmarco_passage"),
    "seed_msmarco_passage_ance": Case("seed_msmarco_passage_ance_small", "data/msmarco_passage"),
    "seed_msmarco_document": Case("seed_msmarco_document_small", "data/msmarco_document"),
    "maxp": Case("seed_msmarco_document_small", "data/msmarco_document", ("method.document_chunks=4",)),
    "seed_mind": Case("seed_mind_small", "data/mind", how=LISTS),
    "dialogue_bi": Case("dialogue_bi_small", "data/convai2", how=LISTS),
    "dialogue_poly16": Case("dialogue_poly16_small", "data/dstc7", how=LISTS),
    "dialogue_poly64": Case("dialogue_poly64_small", "data/ubuntu", how=LISTS),
    "dialogue_poly360": Case("dialogue_poly360_small", "data/wikipedia_search", ("method.kept_of_query=start",)),
    "dialogue_cross": Case("dialogue_cross_small", "data/convai2", how=LISTS),
    "dialogue_cross_ubuntu": Case(
        "dialogue_cross_small", "data/ubuntu", ("method.hard_negatives=0", "method.negatives_per_query=15"), LISTS
    ),
    "dialogue_cross_reddit": Case("dialogue_cross_small", "data/reddit_dialogues", how=LISTS),
    "cross_thought_answers": Case("cross_thought_answers", "data/quasar_t", how=LISTS),
    "hotpotqa": Case("cross_thought_answers", "data/hotpotqa", ("method.hard_negatives=8",), LISTS),
    "wikiqa": Case("cross_thought_answers", "data/wikiqa", ("method.hard_negatives=8",), LISTS),
    "trec_qa": Case("cross_thought_answers", "data/trec_qa", ("method.hard_negatives=8",), LISTS),
    "cross_thought_pairs": Case("cross_thought_pairs_small", "data/mnli", how=CLASSES),
    "snli": Case("cross_thought_pairs_small", "data/snli", how=CLASSES),
    "qqp": Case("cross_thought_pairs_small", "data/qqp", TWO, CLASSES),
    "rte": Case("cross_thought_pairs_small", "data/rte", TWO, CLASSES),
    "sick": Case("cross_thought_pairs_small", "data/sick", how=CLASSES),
    "siamese_small": Case("siamese_small", "data/mine"),
    "poly_encoder_small": Case("poly_encoder_small", "data/mine"),
    "colbert_small": Case("colbert_small", "data/mine"),
    "cross_encoder_small": Case("cross_encoder_small", "data/mine"),
    "cross_thought_answers_small": Case("cross_thought_answers_small", "data/mine", how=LISTS),
}


def is_small(recipe: str) -> bool:
    """Whether a recipe is that of a paper with the sizes for two CPU cores."""
    return "sizes/small.yaml" in (RECIPES / f"{recipe}.yaml").read_text()


def comments(recipe: str) -> str:
    """The comments of a recipe and of the recipes that it extends."""
    text = (RECIPES / f"{recipe}.yaml").read_text()
    base = re.search(r"^extends: \[?(\w+)\.yaml", text, re.MULTILINE)
    own = "".join(f"{line.removeprefix('#')}\n" for line in text.splitlines() if line.startswith("#"))
    return own + (comments(base[1]) if base else "")


def commands(recipe: str) -> Iterator[tuple[str, list[str]]]:
    """The commands in a recipe's comments that build collections: the folder and the arguments of each."""
    for line in re.findall(r"python -m data_prep (collection .*)", comments(recipe).replace("\\\n", " ")):
        arguments = shlex.split(line)
        yield arguments[arguments.index("--out") + 1] if "--out" in arguments else arguments[1], arguments


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The collections that the comments build, by folder."""
    root = tmp_path_factory.mktemp("collections")
    made: dict[str, list[str]] = {}
    with chdir(root):
        tokenizer = raw.vocabulary(Path("tokenizer.json"))
        for recipe in sorted({case.recipe for case in CASES.values()}):
            for out, arguments in commands(recipe):
                assert made.setdefault(out, arguments) == arguments, f"{recipe} makes {out} otherwise"
        for out, arguments in made.items():
            SAMPLES[out]()
            run = Path(arguments[arguments.index("--tokenizer") + 1])
            run.mkdir(parents=True, exist_ok=True)
            shutil.copy(tokenizer, run)
            assert main([*arguments, "--workers", "1"]) == 0
    return {out: root / out for out in made}


@pytest.fixture(scope="module")
def trained(collections: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of each case."""
    folder = tmp_path_factory.mktemp("papers")
    brief = [f"steps={STEPS}", "log_every=1", "deepspeed=cpu", f"checkpoint.every={STEPS}"]
    small = ["batch.size=8", "batch.micro=4", "data.lanes=2", "data.window=2", "data.workers=0"]
    runs = []
    for name, case in CASES.items():
        path = RECIPES / f"{case.recipe}.yaml"
        start = ["init_from=null", f"trunk={json.dumps(DECODER if case.decoder else TRUNK)}"]
        if (begin := Path(read(path).get("init_from") or "").name) in CASES:
            start = [f"init_from={folder}/{begin}"]
        every = [f"validation.every={STEPS}"] if read(path).get("validation") else []
        every += ["refresh.every=1"] if read(path).get("refresh") else []
        named = [shlex.split(override)[0] for override in case.named]
        data = [f"run={folder}/{name}", f"data.collection={collections[case.collection]}"]
        sizes = [] if is_small(case.recipe) else small
        runs.append([path, *data, *brief, *sizes, *start, *every, *named])
    (folder / "stdout.txt").write_text(train(1, runs, folder))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_the_papers_data_train_and_are_ranked(trained: Path, collections: dict[str, Path], name: str) -> None:
    case = CASES[name]
    recipe = load(FinetuneRecipe, trained / name / "recipe.yaml")
    for term in recipe.method.weights:
        losses = toy.scalars(trained / name, f"loss/{term}")
        assert sorted(losses) == list(range(1, STEPS + 1))
        if recipe.validation:
            losses |= {-step: loss for step, loss in toy.scalars(trained / name, f"validation/{term}").items()}
            assert -STEPS in losses
        assert all(0 < loss < math.inf for loss in losses.values())

    folder, out = collections[case.collection], trained / f"{name}.json"
    again = isinstance(recipe.method, RERANK) and not case.how
    depth = 5 if isinstance(recipe.method, DuobertConfig) else 100  # it compares each two of them
    system = f"m={f'bm25 > {depth} ' if again else ''}{trained / name}"
    options = [f"--collection={folder}", f"--split={case.split}", f"--system={system}", f"--out={out}"]
    evaluate.main([*options, *([case.how] if case.how else [])])  # refuses scores that are not finite
    results, opened = json.loads(out.read_text()), Collection.open(folder)
    metrics, about = results["systems"]["m"]["metrics"], results["about"]
    assert metrics
    assert all(0 <= value <= 1 for value in metrics.values())
    groups = opened.groups(case.split)
    if case.how == CLASSES:
        assert about["classes"]["pairs"] == len(groups) >= 8
    elif case.how == LISTS:
        assert about["candidates"]["lists"] == sum((groups[i].labels > 0).any() for i in range(len(groups))) >= 8
    else:
        assert about["queries"] == len(opened.qrels(case.split)) == 8
    assert results["systems"]["m"]["stages"][-1]["checkpoint"].endswith(f"{STEPS}")


def test_ance_mines_in_the_run(trained: Path) -> None:
    mined = [line for line in (trained / "stdout.txt").read_text().splitlines() if "  negatives  " in line]
    assert [line.split("  ")[0] for line in mined] == ["step 1"]
    assert (trained / "seed_msmarco_passage_ance" / "negatives" / "step-00000001" / "about.json").is_file()


def test_groups_that_give_too_few_negatives_are_printed(trained: Path) -> None:
    printed = [line for line in (trained / "stdout.txt").read_text().splitlines() if "hard_negatives" in line]
    others = "negatives=1: the others are drawn at random"  # new users share what any of them clicked
    assert f"split train: 5 of 24 groups give fewer than method.hard_{others}" in printed
    assert f"split train: 12 of 24 groups give fewer than method.hard_{others.replace('1', '99', 1)}" in printed


def test_every_recipe_is_here_with_the_data_that_its_comment_makes() -> None:
    values = {path.stem: read(path) for path in RECIPES.glob("*.yaml")}
    finetuning = {name for name, recipe in values.items() if recipe.get("method", {}).get("name") in MATCHING}
    papers = finetuning - OTHERS - PUBLISHED
    large = {name for name in papers if not name.endswith("_small")}
    trained = {case.recipe for case in CASES.values()}
    assert trained | {name for name in large if f"{name}_small" in trained} == papers
    assert {f"{name}_small" for name in large - {"finetune"}} <= papers  # that of finetune.yaml is siamese_small
    for name in papers:
        load(FinetuneRecipe, RECIPES / f"{name}.yaml")
        if name in large:
            assert values[name]["data"]["collection"] in dict(commands(name))
    assert set(SAMPLES) == {out for name in papers for out, _ in commands(name)}
    for case in CASES.values():
        assert all(override in comments(case.recipe) for override in case.named)


@pytest.mark.parametrize("name", [path.stem for path in RECIPES.glob("*_small.yaml") if is_small(path.stem)])
def test_a_small_recipe_is_the_papers_with_other_sizes(name: str) -> None:
    small, large = (read(RECIPES / f"{stem}.yaml") for stem in (name, name.removesuffix("_small")))
    for method in (small["method"], large["method"]):
        method.get("regularise", {}).pop("ramp", None)  # in steps, of which a small recipe has few
        method.pop("start_terms", None)  # a masked LM of few steps gives texts too many; the papers' BERT does not
    assert small["method"] == large["method"]
    assert small["data"]["collection"] == large["data"]["collection"]
    for key in ("validation", "refresh"):
        assert (small.get(key) is None) == (large.get(key) is None)
    kept = large["optimizer"].keys() - {"lr", "warmup_steps"}
    assert {key: small["optimizer"][key] for key in kept} == {key: large["optimizer"][key] for key in kept}
