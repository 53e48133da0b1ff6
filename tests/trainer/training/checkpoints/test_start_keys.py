"""What a recipe takes over from the folder that it starts from, and what it says where the two differ."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import overridden_keys, with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from tests import toy
from tests.trainer.interop.test_cross_encoder import write_folder as write_cross_encoder
from tests.trainer.interop.test_kinds import write_folder as write_settings
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
KEYS = {"pooling": "mean", "similarity": "cosine", "temperature": 0.02}


@pytest.fixture
def start(toy_collection: Path, tmp_path: Path) -> Path:
    """A run of `pairs`."""
    return write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="pairs", **KEYS, **LENGTHS)


def recipe(start: Path, collection: Path, **method: Any) -> FinetuneRecipe:
    values = toy.finetune_values(start.parent / "run", collection, init_from=str(start))
    return build(FinetuneRecipe, {**values, "method": {"name": "siamese", **LENGTHS, **method}}, "test")


def test_a_run_of_pairs_gives_its_keys(start: Path, toy_collection: Path) -> None:
    started = with_keys_from_folder(recipe(start, toy_collection))
    assert {key: getattr(started.method, key) for key in KEYS} == KEYS
    assert overridden_keys(Folder(start), started.method) == []


@pytest.mark.parametrize("content", ["trainer: other\n", "method: null\n", "method: siamese\n"])
def test_the_recipe_of_another_tool_gives_none(toy_collection: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "recipe.yaml").write_text(content)
    given = recipe(tmp_path / "published", toy_collection)
    assert with_keys_from_folder(given).method == given.method


def test_a_temperature_is_taken_with_its_similarity_alone(start: Path, toy_collection: Path) -> None:
    given = recipe(start, toy_collection, similarity="dot")
    started: Any = with_keys_from_folder(given).method
    assert (started.similarity, started.pooling) == ("dot", "mean")
    assert started.temperature == recipe(start, toy_collection).method.temperature != KEYS["temperature"]
    export_encoder(load_trained(start), start.parent / "export")
    for folder, temperature in ((start, KEYS["temperature"]), (start.parent / "export", 0.05)):
        named: Any = with_keys_from_folder(recipe(folder, toy_collection, similarity="cosine")).method
        assert (named.similarity, named.temperature) == ("cosine", temperature)


def test_a_fine_tuned_run_gives_its_keys_to_the_next(toy_collection: Path, tmp_path: Path) -> None:
    prompts = {"query_prompt": "a ", "document_prompt": "b "}
    tokens = toy_collection / "tokenizer.json"
    first = write_run(tmp_path / "first", tokens, name="siamese", **KEYS, **prompts, **LENGTHS)
    second: Any = with_keys_from_folder(recipe(first, toy_collection)).method
    assert {key: getattr(second, key) for key in (*KEYS, *prompts)} == KEYS | prompts
    lines = overridden_keys(Folder(first), with_keys_from_folder(recipe(first, toy_collection, pooling="cls")).method)
    assert [line.split(",")[0] for line in lines] == [f'{first} was trained with method.pooling="mean"']


def test_a_run_s_recipe_keeps_what_was_set_otherwise_than_the_start(toy_collection: Path, tmp_path: Path) -> None:
    prompts = {"query_prompt": "a ", "document_prompt": "b ", "prompt_in_pooling": False}
    tokens = toy_collection / "tokenizer.json"
    start = write_run(tmp_path / "start", tokens, name="siamese", **KEYS, **prompts, **LENGTHS)
    plain = {"query_prompt": "", "document_prompt": "", "prompt_in_pooling": True}
    job = finetuning.build(recipe(start, toy_collection, **plain))
    assert {key: getattr(job.recipe.method, key) for key in (*KEYS, *plain)} == KEYS | plain
    written = yaml.safe_load(job.sidecar_files[checkpoint.RECIPE])
    again = with_keys_from_folder(build(FinetuneRecipe, written, "recipe.yaml"))
    assert again.method == job.recipe.method
    assert plain.items() <= written["method"].items()


@pytest.mark.parametrize("method", [{"name": "colbert"}, {"name": "sparse"}, {"name": "poly_encoder", "m": 4}])
def test_other_models_take_and_give_the_prompts_alone(
    method: dict[str, Any], toy_collection: Path, tmp_path: Path
) -> None:
    prompts, tokens = {"query_prompt": "a ", "document_prompt": "b "}, toy_collection / "tokenizer.json"
    first = write_run(tmp_path / "first", tokens, name="siamese", **KEYS, **prompts, **LENGTHS)
    other: Any = with_keys_from_folder(recipe(first, toy_collection, **method)).method
    assert {key: getattr(other, key) for key in prompts} == prompts
    fresh: Any = recipe(first, toy_collection, **method).method
    assert {**other.model_dump(), **prompts} == {**fresh.model_dump(), **prompts}
    second = write_run(tmp_path / "second", tokens, **method, **prompts, **LENGTHS)
    back: Any = with_keys_from_folder(recipe(second, toy_collection)).method
    plain: Any = recipe(second, toy_collection).method
    assert back.model_dump() == plain.model_dump() | prompts


def test_a_pre_training_says_it_too(start: Path, shards: Path, tmp_path: Path) -> None:
    given = load(PretrainRecipe, toy.seed_recipe(tmp_path / "seed.yaml", shards, trunk=None, init_from=str(start)))
    method = with_keys_from_folder(given).method
    assert overridden_keys(Folder(start), method) == []
    pooled = method.model_copy(update={"pooling": "cls"})
    assert [line.split("method.")[1].split(",")[0] for line in overridden_keys(Folder(start), pooled)] == [
        'pooling="mean"'
    ]


def test_what_a_recipe_sets_otherwise_is_said(start: Path, toy_collection: Path) -> None:
    given = recipe(start, toy_collection, similarity="dot", pooling="cls", temperature=0.5)
    assert overridden_keys(Folder(start), with_keys_from_folder(given).method) == [
        f'{start} was trained with method.pooling="mean", and this run trains with "cls"',
        f'{start} was trained with method.similarity="cosine", and this run trains with "dot"',
    ]


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
    assert [line.split("method.")[1].split("=")[0] for line in overridden_keys(Folder(tmp_path), method)] == keys
