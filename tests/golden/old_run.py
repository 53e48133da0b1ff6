"""Golden values of a run that the code of the day when they were recorded has trained: it resumes, ranks, is exported.

`write` trains it; what is in the folder `run/` is that run's newest checkpoint.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate, export
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.golden.rankings import described
from tests.golden.toy_data import ToyData
from tests.golden.trainings import COSINE, scalars
from tests.golden.values import number
from tests.trainer.many_runs import train
from tests.trainer.runs import vouch

FIXTURE = Path(__file__).with_name("run")
TRUNK = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16, "initializer_range": 0.2}
STOPPED, STEPS = 4, 8


def write(data: ToyData, folder: Path) -> None:
    """Train a run to its half, and put it into `run/` in place of an earlier one."""
    recipe = toy.finetune_recipe(
        folder / "old.yaml",
        data.collection,
        steps=STOPPED,
        trunk={**toy.TRUNK, **TRUNK},
        method={**COSINE, "pooling": "mean", "learn_temperature": True, "query_prompt": "abc"},
        optimizer={"lr": 1e-2, "eps": 1e-3, "schedule": "constant"},
        checkpoint={"every": STOPPED},
    )
    train(1, [[recipe]], folder)
    shutil.rmtree(FIXTURE, ignore_errors=True)
    shutil.copytree(folder / "old", FIXTURE, ignore=shutil.ignore_patterns("tensorboard", "lock", "environment.json"))
    for path in [*FIXTURE.rglob("*.yaml"), *FIXTURE.rglob(checkpoint.STATE)]:
        path.write_text(path.read_text().replace(str(data.collection), "collection").replace(str(folder), "runs"))
    vouch(checkpoint.folder(FIXTURE, STOPPED))


def old_run(data: ToyData, folder: Path) -> dict[str, Any]:
    """Rank with the old run, export it, and resume it to its end."""
    run = folder / "old"
    shutil.copytree(FIXTURE, run)
    collection = Collection.open(data.collection)
    system = open_ranker(run, collection).system(Task.of(collection, "test"))
    scores = np.concatenate([ranked.scores for ranked in system.rank(5)])
    out = folder / "results.json"
    evaluate.main([f"--collection={data.collection}", "--split=test", f"--system=m={run}", f"--out={out}"])
    export.main([str(run), str(folder / "exported")])
    found = {
        "files": sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()),
        "scores": [number(float(score)) for score in scores],
        "metrics": json.loads(out.read_text())["systems"]["m"]["metrics"],
        "export": described(folder / "exported", folder),
    }
    train(1, [[run / "recipe.yaml", f"run={run}", f"data.collection={data.collection}", f"steps={STEPS}"]], folder)
    found["resumed"] = scalars(run)
    found["saved"] = sorted(path.name for path in checkpoint.folder(run, STEPS).iterdir())
    return found
