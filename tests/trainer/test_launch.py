"""Bad input found before training starts: one line, exit code 2, nothing left behind (real ranks elsewhere)."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep.shards import ShardWriter
from data_prep.tokenizer import load as load_tokenizer
from tests import toy
from tests.trainer.runs import write_run
from trainer import finetune, pretrain
from trainer.launch import main
from trainer.recipe import FinetuneRecipe, PretrainRecipe

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command line in this process; it must end with code 2 and one line, which is returned."""

    def run(*argv: object, module: str = "trainer.pretrain") -> str:
        kind, build = {
            "trainer.pretrain": (PretrainRecipe, pretrain.build),
            "trainer.finetune": (FinetuneRecipe, finetune.build),
        }[module]
        with pytest.raises(SystemExit) as ended:
            main(module, kind, build, [str(argument) for argument in argv])  # type: ignore[arg-type]
        said = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2
        assert len(said) == 1
        assert said[0].startswith(f"{module}: ")
        return said[0]

    return run


@pytest.fixture
def recipe(shards: Path, tmp_path: Path) -> Path:
    return toy.seed_recipe(tmp_path / "run.yaml", shards)


@pytest.fixture
def own_shards(shards: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(shards, tmp_path / "shards"))


def test_no_shards(refused: Refused, recipe: Path, tmp_path: Path) -> None:
    assert "nowhere" in refused(recipe, f"data.shards={tmp_path}/nowhere")
    assert not (tmp_path / "run").exists()


def test_a_damaged_manifest(refused: Refused, recipe: Path, own_shards: Path) -> None:
    manifest = own_shards / "manifest.json"
    manifest.write_text(manifest.read_text()[:100])
    assert "manifest.json" in refused(recipe, f"data.shards={own_shards}")


def test_a_manifest_of_another_tokenizer(refused: Refused, recipe: Path, own_shards: Path) -> None:
    content = json.loads((own_shards / "tokenizer.json").read_text())
    content["model"]["vocab"]["zzz"] = len(content["model"]["vocab"])
    (own_shards / "tokenizer.json").write_text(json.dumps(content))
    assert "tokenizer" in refused(recipe, f"data.shards={own_shards}")


def test_a_recipe_for_another_vocabulary(refused: Refused, recipe: Path) -> None:
    assert "trunk.vocab_size: the recipe says 32768" in refused(recipe, "trunk.vocab_size=32768")


def test_shards_without_text(refused: Refused, recipe: Path, shards: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(shards / "tokenizer.json")
    with pytest.raises(Exception, match="document"), ShardWriter(tmp_path / "none", tokenizer):
        pass  # the writer refuses an empty corpus
    assert "none" in refused(recipe, f"data.shards={tmp_path}/none")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.lanes=64", "data.lanes: 64 lanes need at least 64 shards"),
        ("method.max_tokens=65", "method.max_tokens: 65 tokens are more than the trunk's 64 positions"),
        ("trunk.hidden_sizes=8", "hidden_size"),
        ("trunk.model_type=brt", "bert"),
        ("deepspeed=zero9", "zero9"),
        ("batch.size=1", "batch.micro=4 does not divide batch.size=1"),
    ],
)
def test_what_cannot_work_is_found_before_the_first_step(
    refused: Refused, recipe: Path, tmp_path: Path, override: str, words: str
) -> None:
    assert words in refused(recipe, override)
    assert not (tmp_path / "run").exists()


def test_an_unwritable_folder(refused: Refused, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file/run" in refused(recipe, f"run={tmp_path}/file/run")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "closed" in refused(recipe, f"run={tmp_path}/closed/run")


def test_a_run_is_not_started_over_by_mistake(refused: Refused, recipe: Path, shards: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)
    assert "add --resume to go on" in refused(recipe)


def test_a_run_is_not_continued_with_other_data(refused: Refused, recipe: Path, shards: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)
    assert "the recipe now says" in refused(recipe, "--resume")


def test_fine_tuning_from_nothing_and_with_another_tokenizer(
    refused: Refused, shards: Path, toy_collection: Path, tmp_path: Path
) -> None:
    values = {
        "run": str(tmp_path / "tuned"),
        "steps": 2,
        "init_from": str(tmp_path / "pre"),
        "data": {"collection": str(toy_collection), "lanes": 4},
        "batch": {"size": 8, "micro": 4},
        "method": {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32},
        "optimizer": {"lr": 1e-3},
    }
    recipe = toy.write_recipe(tmp_path / "tune.yaml", **values)
    assert "neither a checkpoint nor a run folder" in refused(recipe, module="trainer.finetune")
    other = toy.write_shards(tmp_path / "other", count=100, seed=9)
    write_run(tmp_path / "pre", other / "tokenizer.json", name="mlm", max_tokens=32)
    assert "another tokenizer" in refused(recipe, module="trainer.finetune")
