"""The embeddings-only control: trained token embeddings, and random weights for everything else."""

from pathlib import Path

import pytest
import torch

from benchmarks.common.embeddings_only import embeddings_only
from deepsiam.trainer.jobs.finetuning import build
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build as build_recipe
from tests.trainer.runs import write_run


@pytest.mark.parametrize("method", [{"name": "seed", "max_tokens": 32}, {"name": "cross_thought", "special_tokens": 3}])
def test_it_differs_from_random_weights_in_the_token_embeddings_only(
    method: dict[str, object], shards: Path, toy_collection: Path, tmp_path: Path
) -> None:
    sizes = {} if method["name"] == "seed" else {"sequences": 4, "sequence_tokens": 16}
    run = write_run(tmp_path / "run", shards / "tokenizer.json", **method, **sizes)
    other, start = (embeddings_only(run, tmp_path / name, seed) for name, seed in (("other", 6), ("embeddings", 5)))
    written = [load_trained(of).model.state_dict() for of in (start, other)]
    assert any(not torch.equal(written[0][name], written[1][name]) for name in written[0])
    embeddings_only(run, tmp_path / "other", seed=5)  # replaces what was there
    torch.testing.assert_close(load_trained(other).model.state_dict(), written[0], rtol=0, atol=0)
    kept, random = (
        finetuned(init_from, weights, toy_collection, int(str(method.get("special_tokens", 1))))
        for init_from, weights in ((start, False), (run, True))
    )
    trained = load_trained(run).model.trunk.state_dict()
    (table,) = (name for name in trained if name.endswith("word_embeddings.weight"))
    torch.testing.assert_close(kept[table], trained[table], rtol=0, atol=0)
    assert not torch.equal(random[table], trained[table])
    for name in trained.keys() - {table}:
        torch.testing.assert_close(kept[name], random[name], rtol=0, atol=0)
    assert not all(torch.equal(kept[name], trained[name]) for name in trained.keys() - {table})


def finetuned(init_from: Path, random_weights: bool, collection: Path, tokens: int) -> dict[str, torch.Tensor]:
    """The weights that a fine-tuning with seed 5 starts from."""
    values = {
        "run": "x",
        "seed": 5,
        "steps": 1,
        "init_from": str(init_from),
        "random_weights": random_weights,
        "data": {"collection": str(collection), "lanes": 2, "window": 1},
        "batch": {"size": 4, "micro": 4},
        "optimizer": {"lr": 1e-3},
        "method": {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32, "special_tokens": tokens},
    }
    return build(build_recipe(FinetuneRecipe, values, "test")).model.trunk.state_dict()
