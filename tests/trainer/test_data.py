"""What a recipe trains on is refused where its method cannot use it."""

import json
import shutil
from pathlib import Path

import pytest

from data_prep.errors import InputError
from data_prep.manifest import NAME
from tests import toy
from trainer.data import shard_data
from trainer.recipe import PretrainRecipe, load


def made_by(shards: Path, folder: Path, command: str) -> Path:
    """A copy of shards whose manifest says what made them."""
    shutil.copytree(shards, folder)
    record = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**record, "source": {**record["source"], "command": command}}))
    return folder


@pytest.mark.parametrize("command", ["wikipedia", "bookcorpus", "text", "docstrings"])
def test_utterances_of_what_holds_no_dialogues_are_refused(shards: Path, tmp_path: Path, command: str) -> None:
    folder = made_by(shards, tmp_path / "shards", command)
    wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
    recipe = load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted))
    with pytest.raises(
        InputError, match=f"^method.pairs=utterances: {folder} is of `data_prep {command}`, which has no dialogues"
    ):
        shard_data(recipe)
    sentences = {**wanted, "method": {"name": "poly", "pairs": "sentences"}}
    assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "other.yaml", folder, **sentences)))


def test_utterances_of_reddit_and_of_shards_that_do_not_say_are_taken(shards: Path, tmp_path: Path) -> None:
    for folder in (shards, made_by(shards, tmp_path / "shards", "reddit")):
        wanted = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}
        assert shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", folder, **wanted)))
