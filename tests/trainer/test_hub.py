"""Models of the Hugging Face Hub as starts, systems and exports, against a stand-in of the hub."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.evaluate import main as evaluate
from deepsiam.trainer.export import main as export
from deepsiam.trainer.jobs import finetuning, pretraining
from deepsiam.trainer.ranking.evaluation.results_file import read_results
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.hub import Hub, go_offline
from tests.trainer.runs import save_run, write_run

ADDRESS = "hf://owner/mine"


@pytest.fixture(scope="module")
def exported(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Siamese network's export, with the toy collection's tokenizer; read only."""
    folder = tmp_path_factory.mktemp("exported")
    method = {"name": "siamese", "pooling": "mean", "max_query_tokens": 16, "max_document_tokens": 32}
    run = write_run(folder / "run", toy_collection / "tokenizer.json", **method)
    export_encoder(load_trained(run), folder / "out")
    return folder / "out"


@pytest.fixture
def job_of(toy_collection: Path, tmp_path: Path) -> Callable[..., Job]:
    """Build the job of a fine-tuning from a model, new or resumed from a checkpoint."""

    def job_of(start: object = ADDRESS, resume_from: Path | None = None, train: Any = "all") -> Job:
        changes = {"init_from": str(start), "optimizer": {"lr": 1e-3, "train": train}}
        values = toy.finetune_values(tmp_path / "run", toy_collection, **changes)
        return finetuning.build(build(FinetuneRecipe, values, "test"), resume_from)

    return job_of


def test_a_run_starts_from_a_model_and_names_its_commit(
    hub: Hub, exported: Path, shards: Path, tmp_path: Path, job_of: Callable[..., Job]
) -> None:
    def pretraining_of(start: object) -> Job:
        recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, init_from=str(start), trunk=None)
        return pretraining.build(load(PretrainRecipe, recipe))

    commit = hub.publish("owner/mine", exported)
    for build_job in (job_of, pretraining_of):
        job, local = build_job(ADDRESS), build_job(exported)
        expected = local.model.state_dict()
        for name, tensor in job.model.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
        assert job.recipe.method == local.recipe.method  # the keys of the folder
        assert yaml.safe_load(job.sidecar_files[checkpoint.RECIPE])["init_from"] == f"{ADDRESS}@{commit}"


@pytest.mark.parametrize("train", ["all", {"lora": {"rank": 2, "targets": ["query"]}}])
def test_a_resumed_run_asks_no_hub_and_adapters_name_their_base(
    hub: Hub, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_of: Callable[..., Job], train: Any
) -> None:
    commit = hub.publish("owner/mine", exported)
    job = job_of(train=train)
    run = save_run(tmp_path / "run", job)
    saved = checkpoint.newest_first(run)[0]
    go_offline(monkeypatch)
    hub.requests.clear()
    resumed = job_of(resume_from=saved, train=train)
    assert resumed.recipe.init_from == job.recipe.init_from
    assert resumed.resume_invariants == job.resume_invariants
    assert not hub.requests
    other = job_of(f"{ADDRESS}@{'b' * 40}", saved, train)
    assert other.resume_invariants != job.resume_invariants
    if train != "all":
        export([str(run), str(tmp_path / "out"), "--format", "adapters"])
        config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("owner/mine", commit)
        assert 'from_pretrained("owner/mine")' in (tmp_path / "out" / "README.md").read_text()


def test_a_model_ranks_and_its_tokenizer_is_read(
    hub: Hub, exported: Path, toy_collection: Path, tmp_path: Path
) -> None:
    hub.publish("owner/mine", exported)
    loaded, local = load_any(Path(ADDRESS)), load_any(exported)
    texts = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(loaded.model.embed_queries(*texts).vectors, local.model.embed_queries(*texts).vectors)
    assert tokenizers.load(Path(ADDRESS)).fingerprint == local.tokenizer.fingerprint
    systems = ["--system", f"hub={ADDRESS}", "--system", f"local={exported}"]
    results = tmp_path / "results.json"
    evaluate(["--collection", str(toy_collection), "--split", "test", *systems, "--out", str(results)])
    found = read_results(results).systems
    assert found["hub"].metrics == found["local"].metrics
    assert found["hub"].stages[0].checkpoint_sha256 == found["local"].stages[0].checkpoint_sha256


def test_an_export_is_pushed(
    hub: Hub, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese")
    export([str(run), str(tmp_path / "out"), "--push", "owner/new", "--private"])
    assert capsys.readouterr().out.endswith("uploaded to hf://owner/new\n")
    (files,) = hub.repositories["models", "owner/new"]
    assert files == {
        path.relative_to(tmp_path / "out").as_posix(): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert 'SentenceTransformer("owner/new")' in files["README.md"].decode()
    assert load_any(Path("hf://owner/new")).method.name == "siamese"
    hub.answer = 401, "text/html", b"<html>"
    line = refused(export, run, tmp_path / "again", "--push", "owner/new")
    assert line.startswith("trainer.export: hf://owner/new: the hub refuses access (HTTP status 401)")
    assert (tmp_path / "again" / "README.md").is_file()
    for arguments, problem in ((["--push", "new"], "write OWNER/NAME"), (["--private"], "--push")):
        assert problem in refused(export, run, tmp_path / "third", *arguments)
    assert not (tmp_path / "third").exists()


@pytest.mark.slow
def test_two_ranks_start_from_a_model_and_resume_without_the_hub(
    hub: Hub, exported: Path, toy_collection: Path, tmp_path: Path
) -> None:
    commit = hub.publish("owner/mine", exported)
    recipe = toy.finetune_recipe(tmp_path / "run.yaml", toy_collection, init_from=ADDRESS)
    first = toy.launch(2, "tests.trainer.from_hub", recipe)
    assert first.returncode == 0, first.stderr
    assert yaml.safe_load((tmp_path / "run" / checkpoint.RECIPE).read_text())["init_from"] == f"{ADDRESS}@{commit}"
    shutil.rmtree(tmp_path / "hub")
    hub.requests.clear()
    resumed = toy.launch(2, "tests.trainer.from_hub", recipe, "--resume", "steps=4")
    assert resumed.returncode == 0, resumed.stderr
    assert checkpoint.newest_first(tmp_path / "run")[0].name == "step-00000004"
    assert not hub.requests
