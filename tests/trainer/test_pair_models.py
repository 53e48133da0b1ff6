"""trainer.finetune with models that compare a query with its own candidates: what they start from and refuse."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.interop.test_cross_encoder import write_folder
from tests.trainer.runs import save_run, write_run

CROSS_THOUGHT = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}
ANSWERS = {"name": "cross_thought_answers", "special_tokens": 3, "negatives_per_query": 3, **LENGTHS}
PAIRS = {"name": "cross_thought_pairs", "special_tokens": 3, "classes": 3, **LENGTHS}


@pytest.fixture(scope="module")
def pretrained(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Cross-Thought."""
    return write_run(tmp_path_factory.mktemp("start") / "run", toy_collection / "tokenizer.json", **CROSS_THOUGHT)


def job_of(folder: Path, collection: Path, method: dict[str, Any], *overrides: str, start: Path | None = None) -> Job:
    """The job of a fine-tuning in a folder, from random weights unless it has a start."""
    encoder = {"init_from": str(start)} if start else {"trunk": toy.TRUNK}
    recipe = toy.finetune_recipe(folder / "recipe.yaml", collection, method=method, **encoder)
    return finetuning.build(load(FinetuneRecipe, recipe, overrides))


def test_the_cross_layer_of_a_run_or_of_its_export_is_taken_over(
    toy_collection: Path, toy_classes: Path, pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = load_trained(pretrained)
    weights = dict(trained.model.named_parameters())
    export_encoder(trained, tmp_path / "export", with_decoder=True)
    for words, collection, method in ("4 of the 4", toy_collection, ANSWERS), ("14 of the 16", toy_classes, PAIRS):
        for start in (pretrained, tmp_path / "export"):
            model = job_of(tmp_path, collection, method, start=start).model
            own = {key: weight for key, weight in model.named_parameters() if not key.startswith("head.")}
            assert any(key.startswith("cross.") for key in own)
            for key, weight in own.items():
                torch.testing.assert_close(weight, weights[key], rtol=0, atol=0)
            assert f"the encoder, and {words} head weights" in capsys.readouterr().out
        model = job_of(tmp_path, collection, method, "random_weights=true", start=pretrained).model
        key = "cross.attention.query.weight"
        assert not torch.equal(model.get_parameter(key), weights[key])


def test_a_run_continues_from_the_heads_of_another(toy_collection: Path, tmp_path: Path) -> None:
    method = {"name": "siamese", "projection": 8, "towers": 2, "learn_temperature": True, **LENGTHS}
    first = write_run(tmp_path / "first", toy_collection / "tokenizer.json", **method)
    weights = dict(load_trained(first).model.named_parameters())
    model = job_of(tmp_path, toy_collection, {**method, "temperature": 0.5}, start=first).model
    for name, weight in model.named_parameters():
        expected = torch.full_like(weight, math.log(0.5)) if name == "log_temperature" else weights[name]
        torch.testing.assert_close(weight, expected, rtol=0, atol=0)


def test_a_pair_longer_than_the_encoder_reads_is_refused(toy_collection: Path, tmp_path: Path) -> None:
    method = {"name": "cross_encoder", "negatives_per_query": 1, "max_query_tokens": 25, "max_document_tokens": 41}
    words = r"method.max_query_tokens \+ method.max_document_tokens - 1: 65 tokens are more than the trunk's 64"
    with pytest.raises(InputError, match=words):
        job_of(tmp_path, toy_collection, method)
    job_of(tmp_path, toy_collection, method, "method.max_document_tokens=40")


@pytest.mark.parametrize("method", [PAIRS, {"name": "cross_encoder", "loss": "classes", "classes": 3, **LENGTHS}])
def test_another_number_of_classes_than_the_datas_is_refused(
    toy_classes: Path, tmp_path: Path, method: dict[str, Any]
) -> None:
    job_of(tmp_path, toy_classes, method)
    for classes in (2, 4):
        words = f"method.classes: {classes}, but .* has 3: entailment, neutral, contradiction: set method.classes=3"
        with pytest.raises(InputError, match=words):
            job_of(tmp_path, toy_classes, method, f"method.classes={classes}")


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ((), None),
        (("Entailment", "neutral", "contradiction"), None),
        (("contradiction", "entailment", "neutral"), "the last layer is brought into their order"),
        (("negative", "neutral", "positive"), "the last layer is new"),
    ],
)
def test_the_classes_of_a_start_are_brought_into_the_order_of_the_datas(
    toy_classes: Path, tmp_path: Path, theirs: tuple[str, ...], line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"id2label": dict(enumerate(theirs))} if theirs else {}
    start = write_folder(tmp_path / "start", toy_classes / "tokenizer.json", "bert", num_labels=3, **names)
    method = {"name": "cross_encoder", "loss": "classes", "classes": 3, "max_query_tokens": 10}
    job = job_of(tmp_path, toy_classes, method, start=start)
    said = [one for one in capsys.readouterr().out.splitlines() if "has the classes" in one]
    assert [one.rpartition(", ")[2] for one in said] == ([line] if line else [])
    published = load_file(start / "model.safetensors")["classifier.weight"]
    head = dict(job.model.named_parameters())["head.3.weight"].detach()
    if line and "new" in line:
        assert not torch.isin(head, published).any()
    else:
        assert head.equal(published[[1, 2, 0]] if line else published)
    run = save_run(tmp_path / "run", job)
    export_encoder(load_trained(run), tmp_path / "out")
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}
    assert exported["label2id"] == {"entailment": 0, "neutral": 1, "contradiction": 2}
