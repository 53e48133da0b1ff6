"""What a run was started from is removed, and its data are moved: its checkpoint is enough to resume."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.runs import write_run

STEPS = 4


def same_weights(first: Path, second: Path) -> bool:
    """Whether the last checkpoints of two runs have weights that are equal to the bit."""
    one, other = (load_file(checkpoint.folder(run, STEPS) / checkpoint.WEIGHTS) for run in (first, second))
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


@pytest.mark.slow
def test_a_fine_tuning_resumes_without_its_start_and_with_moved_data(toy_collection: Path, tmp_path: Path) -> None:
    """The start is a sentence-transformers folder, whose pooling and similarity the run keeps."""
    data, moved, start = tmp_path / "data", tmp_path / "elsewhere", tmp_path / "start"
    shutil.copytree(toy_collection, data)
    pretrained = write_run(tmp_path / "pretrained", data / "tokenizer.json", name="seed", max_tokens=32)
    export_encoder(load_trained(pretrained), start)
    (start / "modules.json").write_text(
        json.dumps(
            [
                {"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
            ]
        )
    )
    (start / "1_Pooling").mkdir()
    (start / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}'
    )
    keys = {"init_from": str(start), "optimizer": {"lr": 1e-3, "warmup_steps": 2}, "checkpoint": {"every": 2}}
    recipe = toy.finetune_recipe(tmp_path / "run.yaml", data, steps=STEPS, **keys)
    whole = toy.launch(2, "trainer.finetune", recipe)
    assert whole.returncode == 0, whole.stderr
    again = tmp_path / "again"
    shutil.copytree(checkpoint.folder(tmp_path / "run", 2), checkpoint.folder(again, 2))
    shutil.rmtree(start)
    data.rename(moved)
    resumed = toy.launch(2, "trainer.finetune", recipe, "--resume", f"run={again}", f"data.collection={moved}")
    assert resumed.returncode == 0, resumed.stderr
    assert "starting from" not in resumed.stdout  # its weights are the checkpoint's
    assert same_weights(tmp_path / "run", again)
    assert load_trained(again).recipe.method.model_dump()["pooling"] == "mean"
    afresh = toy.run("trainer.finetune", recipe, f"run={tmp_path / 'afresh'}", f"data.collection={moved}")
    assert afresh.returncode == 2
    assert str(start) in afresh.stderr  # only a resume can do without it

    moved_run = [f"run={again}", f"data.collection={moved}"]
    doctor = toy.run("trainer.doctor", recipe, *moved_run, "--master_port", toy.free_port())
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    tokenizer = tokenizers.load(moved / "tokenizer.json")
    (moved / "queries.jsonl").write_text(
        (moved / "queries.jsonl").read_text().replace('"q0", "text": "', '"q0", "text": "x ')
    )
    other = tmp_path / "other"
    build_collection("beir", [moved], other, tokenizer)
    refused = toy.run("trainer.finetune", recipe, "--resume", f"run={again}", f"data.collection={other}")
    assert refused.returncode == 2
    assert f"saved with data.collection={moved}, the recipe now says {other}" in refused.stderr


@pytest.mark.slow
def test_a_pre_training_resumes_without_its_start_and_with_moved_shards(shards: Path, tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "elsewhere"
    shutil.copytree(shards, data)
    start = write_run(tmp_path / "start", data / "tokenizer.json", name="mlm", max_tokens=32)
    recipe = toy.seed_recipe(
        tmp_path / "run.yaml", data, trunk=None, init_from=str(start), steps=STEPS, checkpoint={"every": 2}
    )
    whole = toy.run("trainer.pretrain", recipe)
    assert whole.returncode == 0, whole.stderr
    again = tmp_path / "again"
    shutil.copytree(checkpoint.folder(tmp_path / "run", 2), checkpoint.folder(again, 2))
    shutil.rmtree(start)
    data.rename(moved)
    resumed = toy.run("trainer.pretrain", recipe, "--resume", f"run={again}", f"data.shards={moved}")
    assert resumed.returncode == 0, resumed.stderr
    assert same_weights(tmp_path / "run", again)
    refused = toy.run("trainer.pretrain", recipe, "--resume", f"run={again}", f"data.shards={moved}", "init_from=x")
    assert refused.returncode == 2
    assert f"saved with init_from={start}, the recipe now says x: leave it as it was" in refused.stderr
