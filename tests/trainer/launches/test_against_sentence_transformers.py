"""A recipe trains like the script that a sentence-transformers user would write: equal losses at every step."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import toy
from tests.trainer.many_runs import train
from tests.trainer.pairs_in_order import pairs_in_order
from tests.trainer.runs import write_run
from trainer.ranking.export.export import export_encoder
from trainer.training.checkpoints.load import load_trained
from trainer.training.checkpoints.start_keys import take_over
from trainer.training.recipe.schema import FinetuneRecipe
from trainer.training.recipe.yaml_file import load

STEPS, BATCH = 20, 8


@pytest.fixture
def folder(toy_collection: Path, tmp_path: Path) -> Path:
    """A sentence-transformers folder with mean pooling and cosine similarity, without dropout."""
    keys = {"name": "siamese", "pooling": "mean", "similarity": "cosine", "max_query_tokens": 32}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", max_document_tokens=32, **keys)
    export_encoder(load_trained(run), tmp_path / "folder")
    config = tmp_path / "folder" / "config.json"
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps({**json.loads(config.read_text()), **dropouts}))
    return tmp_path / "folder"


def recipe_of(folder: Path, collection: Path, **method: Any) -> Path:
    return toy.write_recipe(
        folder.parent / "recipe.yaml",
        run=str(folder.parent / "tuned"),
        steps=STEPS,
        log_every=1,
        deepspeed="cpu",
        init_from=str(folder),
        data={"collection": str(collection), "lanes": 4, "window": 2},
        batch={"size": BATCH, "micro": BATCH},
        method={"max_query_tokens": 32, "max_document_tokens": 32, **method},
        optimizer={"lr": 1e-3, "warmup_steps": 4},
    )


def adamw(model: torch.nn.Module, recipe: FinetuneRecipe) -> torch.optim.AdamW:
    """AdamW as Hugging Face's Trainer builds it: no decay of biases and normalisation weights."""
    keys = recipe.optimizer
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": keys.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=keys.betas, eps=keys.eps)


@pytest.mark.slow  # a real process
def test_multiple_negatives_ranking_loss(toy_collection: Path, folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")  # an extra: pip install deepsiam[export]
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    path = recipe_of(folder, toy_collection, name="siamese")
    train(1, [[path]], folder.parent)
    ours = toy.scalars(folder.parent / "tuned", "loss/softmax")

    recipe = take_over(load(FinetuneRecipe, path))
    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    loss_of, optimizer = MultipleNegativesRankingLoss(model), adamw(model, recipe)
    theirs = {}
    for step, pairs in enumerate(islice(pairs_in_order(recipe), STEPS), start=1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.optimizer.rate(step - 1, STEPS)
        loss = loss_of([model.tokenize(list(side)) for side in zip(*pairs, strict=True)], None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()
        theirs[step] = loss.item()
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert theirs[STEPS] < 0.8 * theirs[1]
