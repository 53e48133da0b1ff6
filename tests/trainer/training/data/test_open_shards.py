"""Shards that a recipe's method cannot use are refused."""

import json
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import NAME
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy


def with_source(shards: Path, folder: Path, **source: object) -> Path:
    """A copy of shards with other entries in the `source` of its manifest."""
    shutil.copytree(shards, folder)
    record = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**record, "source": {**record["source"], **source}}))
    return folder


def test_utterances_of_shards_without_dialogues_are_refused(shards: Path, tmp_path: Path) -> None:
    folder = with_source(shards, tmp_path / "shards", dialogues=False)
    wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
    recipe = load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted))
    with pytest.raises(InputError, match=f"^method.pairs=utterances: the documents of {folder} are not dialogues"):
        shard_data(recipe)
    sentences = {**wanted, "method": {"name": "poly", "pairs": "sentences"}}
    assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "other.yaml", folder, **sentences)))


def test_utterances_of_dialogues_and_of_unknown_documents_are_accepted(shards: Path, tmp_path: Path) -> None:
    for folder in (shards, with_source(shards, tmp_path / "shards", dialogues=True)):
        wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
        assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted)))
