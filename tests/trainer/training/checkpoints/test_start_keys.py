"""What a run takes over from the folder that it starts from, and the user's modules that it is continued with."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.registry import import_named
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.checkpoints.load import load_trained, recipe_of
from deepsiam.trainer.training.checkpoints.start_keys import overridden_keys, with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from tests import own_code as modules
from tests import toy
from tests.trainer.interop.test_cross_encoder import write_folder as write_cross_encoder
from tests.trainer.interop.test_kinds import write_folder as write_settings
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
KEYS = {"pooling": "mean", "similarity": "cosine", "temperature": 0.02}
PROMPTS = {"query_prompt": "a ", "document_prompt": "b "}
PROMPTED_KEYS = {**KEYS, **PROMPTS, "prompt_in_pooling": False}
Recipes = Callable[..., Any]
Starts = Callable[..., Path]


@pytest.fixture
def recipe(toy_collection: Path, tmp_path: Path) -> Recipes:
    """Build the recipe of a fine-tuning from a folder, of a siamese network unless `method` names another."""

    def recipe(start: Path, **method: Any) -> FinetuneRecipe:
        values = toy.finetune_values(tmp_path / "run", toy_collection, init_from=str(start))
        return build(FinetuneRecipe, {**values, "method": {"name": "siamese", **LENGTHS, **method}}, "test")

    return recipe


@pytest.fixture
def run_of(toy_collection: Path, tmp_path: Path) -> Starts:
    """Write a run, named like its method."""
    tokens = toy_collection / "tokenizer.json"
    return lambda name, **keys: write_run(tmp_path / name, tokens, name=name, **keys, **LENGTHS)


@pytest.fixture
def pairs(run_of: Starts) -> Path:
    """A run of `pairs`."""
    return run_of("pairs", **PROMPTED_KEYS)


def told(start: Path, method: MethodConfig) -> list[str]:
    """What is said of the keys that a method has otherwise than its start: each as KEY=VALUE of the start."""
    return [line.split("method.")[1].split(",")[0] for line in overridden_keys(Folder(start), method)]


def values(method: Any, *keys: str) -> dict[str, Any]:
    return {key: getattr(method, key) for key in keys}


@pytest.mark.parametrize("content", ["trainer: other\n", "method: null\n", "method: siamese\n"])
def test_the_recipe_of_another_tool_gives_none(recipe: Recipes, tmp_path: Path, content: str) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "recipe.yaml").write_text(content)
    given = recipe(tmp_path / "published")
    assert with_keys_from_folder(given).method == given.method


def test_a_temperature_is_taken_with_its_similarity_alone(recipe: Recipes, pairs: Path) -> None:
    started: Any = with_keys_from_folder(recipe(pairs, similarity="dot")).method
    assert (started.similarity, started.pooling) == ("dot", "mean")
    assert started.temperature == recipe(pairs).method.temperature != KEYS["temperature"]
    export_encoder(load_trained(pairs), pairs.with_name("export"))
    for folder, temperature in ((pairs, KEYS["temperature"]), (pairs.with_name("export"), 0.05)):
        named: Any = with_keys_from_folder(recipe(folder, similarity="cosine")).method
        assert (named.similarity, named.temperature) == ("cosine", temperature)


def test_a_run_gives_its_keys_to_the_next_and_what_is_set_otherwise_is_said(
    recipe: Recipes, run_of: Starts, pairs: Path
) -> None:
    first = run_of("siamese", **PROMPTED_KEYS)
    for start in (pairs, first):
        taken = with_keys_from_folder(recipe(start)).method
        assert values(taken, *PROMPTED_KEYS) == PROMPTED_KEYS
        assert told(start, taken) == []
    given = recipe(pairs, similarity="dot", pooling="cls", prompt_in_pooling=True, temperature=0.5)
    assert overridden_keys(Folder(pairs), with_keys_from_folder(given).method) == [
        f'{pairs} was trained with method.pooling="mean", and this run trains with "cls"',
        f"{pairs} was trained with method.prompt_in_pooling=false, and this run trains with true",
        f'{pairs} was trained with method.similarity="cosine", and this run trains with "dot"',
    ]


def test_a_run_s_recipe_keeps_what_was_set_otherwise_than_the_start(recipe: Recipes, run_of: Starts) -> None:
    start = run_of("siamese", **PROMPTED_KEYS)
    plain = {"query_prompt": "", "document_prompt": "", "prompt_in_pooling": True}
    job = finetuning.build(recipe(start, **plain))
    assert values(job.recipe.method, *KEYS, *plain) == KEYS | plain
    written = yaml.safe_load(job.sidecar_files[checkpoint.RECIPE])
    assert with_keys_from_folder(build(FinetuneRecipe, written, "recipe.yaml")).method == job.recipe.method
    assert plain.items() <= written["method"].items()


@pytest.mark.parametrize("method", [{"name": "colbert"}, {"name": "sparse"}, {"name": "poly_encoder", "m": 4}])
def test_other_models_take_and_give_the_prompts_alone(recipe: Recipes, run_of: Starts, method: dict[str, Any]) -> None:
    siamese, other = run_of("siamese", **KEYS, **PROMPTS), run_of(**method, **PROMPTS)
    for given in (recipe(siamese, **method), recipe(other)):
        taken = with_keys_from_folder(given).method
        assert taken.model_dump() == given.method.model_dump() | PROMPTS


def test_a_pre_training_says_it_too(pairs: Path, shards: Path, tmp_path: Path) -> None:
    given = load(PretrainRecipe, toy.seed_recipe(tmp_path / "seed.yaml", shards, trunk=None, init_from=str(pairs)))
    method = with_keys_from_folder(given).method
    assert told(pairs, method) == []
    assert told(pairs, method.model_copy(update={"pooling": "cls"})) == ['pooling="mean"']


PROMPTED = {"config_sentence_transformers.json: prompts": {"query": "find: "}}
BINARY = CrossEncoderConfig(name="cross_encoder", loss="binary")


@pytest.mark.parametrize(
    ("method", "files", "keys"),
    [
        (SiameseConfig(name="siamese"), PROMPTED, ["pooling", "similarity", "query_prompt"]),
        (SparseConfig(name="sparse"), {"SpladePooling/config.json: pooling_strategy": "sum"}, ["pooling"]),
        (BINARY, {}, ["pooling", "hidden_activation", "hidden_norm", "token_types", "max_pair_tokens"]),
    ],
    ids=lambda value: value.name if isinstance(value, MethodConfig) else "",
)
def test_keys_built_without_a_recipe_are_compared_too(
    toy_collection: Path, tmp_path: Path, method: MethodConfig, files: dict[str, Any], keys: list[str]
) -> None:
    if method is BINARY:
        write_cross_encoder(tmp_path, toy_collection / "tokenizer.json", "modernbert", types=False)
    else:
        write_settings(tmp_path, method.folder_kind, files)
    assert [line.split("=")[0] for line in told(tmp_path, method)] == keys


METHOD = "import deepsiam\ndeepsiam.register('method', 'mine', 'deepsiam.models.pretraining.mlm.MlmConfig')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with modules.own_code(tmp_path, modules.EXAMPLES):
        yield tmp_path


def saved(folder: Path, **imports: str) -> Path:
    path = folder / "step"
    path.mkdir()
    (path / checkpoint.IMPORTS).write_text(json.dumps(imports))
    return path


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"method": {"name": "bag_of_words"}}, ["bag_of_words"]),
        ({"optimizer": {"lr": 1, "name": "radam"}, "imports": ["deepsiam_examples.faq"]}, ["faq", "radam"]),
    ],
)
def test_the_modules_of_what_a_run_is_trained_by(changes: dict[str, Any], names: list[str], folder: Path) -> None:
    for name in ("bag_of_words", "radam", "success", "two_way"):  # not because they are imported
        import_named(f"deepsiam_examples.{name}", "the test")
    recipe = load(PretrainRecipe, toy.write_recipe(folder / "a.yaml", **{**toy.SEED_RECIPE, **changes}))
    files = {f"deepsiam_examples.{name}": modules.EXAMPLES / "deepsiam_examples" / f"{name}.py" for name in names}
    assert own_code.modules_of(recipe) == {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()
    }


def test_the_modules_of_losses(folder: Path) -> None:
    import_named("deepsiam_examples.pairwise", "the test")
    for loss, found in (("pairwise", ["deepsiam_examples.pairwise"]), ({"hinge": 1, "softmax": 2}, [])):
        method = {"name": "siamese", "loss": loss, "hard_negatives": 1}
        values = toy.finetune_values(folder, folder, method=method, init_from="x")
        assert [*own_code.modules_of(build(FinetuneRecipe, values, "it"))] == found


def test_a_resume_needs_the_modules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_code.check_continues(folder, {"new": "1" * 64})  # an older checkpoint
    step = saved(folder, mine="0" * 64)
    own_code.check_continues(step, {"mine": "0" * 64, "new": "1" * 64})
    assert capsys.readouterr().out == ""
    own_code.check_continues(step, {"mine": "1" * 64})
    assert capsys.readouterr().out == "mine has changed since step: the run continues with what it is now\n"
    with pytest.raises(InputError, match="step: trained with mine, which is not there now: name it in imports$"):
        own_code.check_continues(step, {})


@pytest.mark.parametrize("content", ["[]", '{"a; rm -rf": "' + "0" * 64 + '"}', '{"a": "x"}', "{"])
def test_a_damaged_record_is_one_line(content: str, folder: Path) -> None:
    step = saved(folder)
    (step / checkpoint.IMPORTS).write_text(content)
    with pytest.raises(InputError, match="imports.json: .*; it is damaged, or was not saved by this code"):
        own_code.check_continues(step, {})


def test_a_load_imports_nothing_that_the_folder_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules.write_module(folder, "my_module", METHOD)
    step = saved(folder, my_module="0" * 64)
    method = {"name": "mine"}
    toy.write_recipe(step / checkpoint.RECIPE, **{**toy.SEED_RECIPE, "imports": ["my_module"], "method": method})
    with pytest.raises(InputError) as refused:
        recipe_of(step)
    assert str(refused.value).endswith(
        "not 'mine'; for one of your own, name its module in imports; it was trained with my_module, which nothing "
        "imports unasked: install the package, or set DEEPSIAM_IMPORTS=my_module"
    )
    assert "my_module" not in sys.modules
    monkeypatch.setenv("DEEPSIAM_IMPORTS", "my_module")
    with pytest.raises(InputError, match="recipe.yaml: method.name: input should be 'mlm', not 'mine'$"):
        recipe_of(step)  # its class has another name: it was found
