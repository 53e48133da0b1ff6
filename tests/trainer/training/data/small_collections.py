"""Make small collections, and recipes that train on them."""

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy


def built(folder: Path, shards: Path, lines: list[dict[str, Any]]) -> Collection:
    """Build FlagEmbedding's lines with the tokenizer of the shards."""
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["collection", "flagembedding", str(folder / "train.jsonl"), "--out", str(folder / "out")]
    main([*arguments, "--tokenizer", str(shards / "tokenizer.json")])
    return Collection.open(folder / "out")


def recipe(path: Path, collection: Path, lanes: int, window: int) -> FinetuneRecipe:
    data = {"collection": str(collection), "lanes": lanes, "window": window}
    changes = {"validation": {"split": "test", "every": 1}, "batch": {"size": 16, "micro": 8}}
    return load(FinetuneRecipe, toy.finetune_recipe(path, collection, init_from="none", data=data, **changes))
