"""sentence-transformers folders: their pooling and similarity are adopted; what we do not support is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.sentence_transformer import TEMPERATURE, pooling_of, similarity_of
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.data_prep.collections.beir_folder import write_beir
from tests.trainer.interop.published_folders import modules, write

TWO_POOLINGS = {"pooling_mode_mean_tokens": True, "pooling_mode_weightedmean_tokens": True}
COSINE = {"similarity": "cosine", "temperature": TEMPERATURE}


def write_folder(
    folder: Path, pooling: dict[str, Any], *more: str, inside: str = "", similarity: str | None = None
) -> None:
    """Write the settings of a folder with a pooling and other modules."""
    write(folder / "modules.json", modules("Transformer", "Pooling", *more, path=inside))
    write(folder / "1_Pooling" / "config.json", pooling)
    if similarity:
        write(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})


def model_keys(path: Path) -> dict[str, Any]:
    return pooling_of(folder := Folder(path)) | similarity_of(folder)


def two_sided(folder: Path) -> None:
    """Give each side an encoder of its own."""
    write(folder / "modules.json", modules("Router", path=""))
    for name, keys in (("query_0_Transformer", {"model_type": "bert"}), ("document_1_Pooling", {})):
        write(folder / name / "config.json", keys)


@pytest.mark.parametrize(
    ("pooling", "name"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
        ({"word_embedding_dimension": 32}, "mean"),  # the library's default
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, "mean"),
    ],
)
def test_poolings_of_all_releases(tmp_path: Path, pooling: dict[str, Any], name: str) -> None:
    write_folder(tmp_path, pooling, "Normalize", inside="0_Transformer")
    assert Folder(tmp_path).encoder == tmp_path / "0_Transformer"
    assert model_keys(tmp_path) == {"pooling": name, **COSINE}


@pytest.mark.parametrize(
    ("modules", "similarity", "expected"),
    [
        (["Normalize"], None, COSINE),
        ([], "dot", {"similarity": "dot"}),
        ([], "cosine", COSINE),
        ([], None, COSINE),  # the library's default
        (["Normalize"], "dot", COSINE),
    ],
)
def test_similarities(tmp_path: Path, modules: list[str], similarity: str | None, expected: dict[str, Any]) -> None:
    write_folder(tmp_path, {"pooling_mode": "cls"}, *modules, similarity=similarity)
    assert model_keys(tmp_path) == {"pooling": "cls", **expected}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: write_folder(f, {"pooling_mode": "max"}), "its pooling is max, not one of cls, mean, lasttoken"),
        (lambda f: write_folder(f, {"pooling_mode": ["cls", "mean"]}), "its pooling is cls and mean"),
        (lambda f: write_folder(f, {"pooling_mode": []}), "its pooling is none"),
        (lambda f: write_folder(f, TWO_POOLINGS), "its pooling is mean and weightedmean_tokens"),
        (lambda f: (f / "modules.json").write_text("{"), "modules.json: not its kind of JSON"),
        (two_sided, "has no Transformer module, but a Router, .* name the folder of an encoder .* as .*query_0_Transf"),
        (lambda f: (f / "1_Pooling" / "config.json").unlink(), "1_Pooling/config.json: cannot read"),
    ],
)
def test_what_cannot_be_taken_over_is_one_clear_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    write_folder(tmp_path, {"pooling_mode": "cls"})
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        model_keys(tmp_path)


def recipe(folder: Path, collection: Path, **method: Any) -> FinetuneRecipe:
    values = toy.finetune_values(folder / "run", collection, init_from=str(folder), method=method)
    return build(FinetuneRecipe, values, "test")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({}, ("mean", "cosine", TEMPERATURE)),
        ({"pooling": "cls"}, ("cls", "cosine", TEMPERATURE)),
        ({"temperature": 0.1}, ("mean", "cosine", 0.1)),
        ({"similarity": "dot"}, ("mean", "dot", 1.0)),  # a temperature of 0.05 suits only cosines
        ({"similarity": "cosine"}, ("mean", "cosine", TEMPERATURE)),
    ],
)
def test_the_recipe_comes_first(
    tmp_path: Path, toy_collection: Path, method: dict[str, Any], expected: tuple[str, str, float]
) -> None:
    write_folder(tmp_path, {"pooling_mode": "mean"}, "Normalize")
    given = recipe(tmp_path, toy_collection, **method)
    taken = with_keys_from_folder(given).method
    assert (taken.pooling, taken.similarity, taken.temperature) == expected
    (tmp_path / "modules.json").unlink()  # a plain Hugging Face folder names neither pooling nor similarity
    assert with_keys_from_folder(given) == given


@pytest.mark.parametrize(
    ("pooling", "more", "similarity", "needed", "message"),
    [
        ("cls", ["Dense"], None, "pooling", "has a Dense module"),
        ("max", [], None, "pooling", "its pooling is max"),
        ("cls", [], "euclidean", "similarity", "its similarity_fn_name is 'euclidean'"),
    ],
)
def test_a_start_may_do_more_where_the_recipe_says_what_to_do(
    tmp_path: Path,
    toy_collection: Path,
    pooling: str,
    more: list[str],
    similarity: str | None,
    needed: str,
    message: str,
) -> None:
    write_folder(tmp_path, {"pooling_mode": pooling}, *more, similarity=similarity)
    with pytest.raises(InputError, match=f"{message}.*: set method.{needed} to start from the encoder alone"):
        with_keys_from_folder(recipe(tmp_path, toy_collection))
    given = recipe(tmp_path, toy_collection, **{needed: {"pooling": "mean", "similarity": "dot"}[needed]})
    taken = with_keys_from_folder(given).method
    assert (taken.pooling, taken.similarity) == (("mean", "cosine") if needed == "pooling" else ("cls", "dot"))


@pytest.mark.parametrize(
    "method",
    [
        {"name": "colbert"},  # a temperature of 0.05 suits no sum of cosines
        {"name": "poly_encoder", "m": 4},
        {"name": "cross_encoder", "negatives_per_query": 1},
        {"name": "cross_thought_answers", "special_tokens": 1, "negatives_per_query": 1},
    ],
)
def test_other_models_take_nothing_over(tmp_path: Path, toy_collection: Path, method: dict[str, Any]) -> None:
    write_folder(tmp_path, {"pooling_mode": "lasttoken"}, "Normalize")
    given = recipe(tmp_path, toy_collection, **method)
    assert with_keys_from_folder(given) == given


@pytest.mark.parametrize(
    ("config", "method", "pooling"),
    [
        ({"pooling_strategy": "sum"}, {}, "sum"),
        ({}, {}, "max"),
        ({"pooling_strategy": "sum"}, {"pooling": "max"}, "max"),
        ({"pooling_strategy": "mean"}, {}, "SpladePooling/config.json: pooling_strategy is 'mean', not max or sum"),
    ],
)
def test_a_sparse_model_pools_terms_as_its_start(
    tmp_path: Path, toy_collection: Path, config: dict[str, Any], method: dict[str, Any], pooling: str
) -> None:
    write(tmp_path / "modules.json", modules("MLMTransformer", "SpladePooling", path=""))
    write(tmp_path / "SpladePooling/config.json", config)
    given = recipe(tmp_path, toy_collection, name="sparse", **method)
    if "not max" in pooling:
        with pytest.raises(InputError, match=pooling):
            with_keys_from_folder(given)
    else:
        assert with_keys_from_folder(given).method.pooling == pooling


def test_keys_that_do_not_suit_the_folder_are_one_clear_line(tmp_path: Path, toy_collection: Path) -> None:
    write_folder(tmp_path, {"pooling_mode": "mean"}, "Normalize")
    given = recipe(tmp_path, toy_collection, special_tokens=5)
    with pytest.raises(InputError, match=r"and the recipe: method.special_tokens=5 are pooled .* set method.pooling"):
        with_keys_from_folder(given)


def test_a_run_keeps_how_its_collection_reads_special_tokens(tmp_path: Path, toy_collection: Path) -> None:
    """By a file beside the tokenizer of every checkpoint, which its export is written from."""
    for published in (False, True):
        given = Collection.open(toy_collection).tokenizer.splitting(not published)
        beir = write_beir(tmp_path / f"beir-{published}")
        collection = build_collection("beir", [beir], tmp_path / f"made-{published}", given).directory
        values = recipe(tmp_path, collection).model_dump(mode="json", exclude_unset=True)
        values |= {"init_from": None, "trunk": toy.TRUNK}
        values["data"] |= {"split": "test", "lanes": 2}
        job = finetuning.build(build(FinetuneRecipe, values, "test"))
        kept = tmp_path / f"kept-{published}"
        kept.mkdir()
        for name, content in job.sidecar_files.items():
            (kept / name).write_bytes(content)
        assert tokenizers.load(kept / "tokenizer.json").split_special_tokens is not published
