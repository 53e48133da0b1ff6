"""A run with adapters as a merged model, or as peft's folder: both give the run's own vectors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import write_adapters, write_run

peft = pytest.importorskip("peft")  # an extra

TEXTS = ["abc de fgh", "a", "jjj abc" * 30, ""]


@pytest.fixture
def start(toy_collection: Path, tmp_path: Path) -> Path:
    run = write_run(tmp_path / "pretrained", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    export_encoder(load_trained(run), tmp_path / "start")
    return tmp_path / "start"


def states(model: torch.nn.Module, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(**tokens).last_hidden_state[:, 0]
    return found


def test_pefts_own_model_and_the_merged_one_give_the_runs_vectors(
    toy_collection: Path, start: Path, tmp_path: Path
) -> None:
    trained = load_trained(write_adapters(tmp_path / "run", toy_collection, start, {"rank": 4}))
    export_encoder(trained, tmp_path / "adapters", form="adapters")
    export_encoder(trained, tmp_path / "merged")
    tokens = AutoTokenizer.from_pretrained(tmp_path / "adapters")(
        TEXTS, truncation=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        own = trained.model.embed_documents(tokens["input_ids"], tokens["attention_mask"].bool())  # type: ignore[operator]
    theirs = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(start), tmp_path / "adapters")
    unused = [name for name, p in theirs.named_parameters() if "lora_B" in name and not p.any()]
    assert unused == []
    merged = AutoModel.from_pretrained(tmp_path / "merged")
    for model in (theirs, merged):
        torch.testing.assert_close(states(model, tokens), own.vectors[:, 0], rtol=0, atol=1e-5)
    assert not states(AutoModel.from_pretrained(start), tokens).allclose(own.vectors[:, 0], atol=1e-2)
    settings = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(start)
    assert settings["target_modules"] == ["query", "value"]
    assert str(start) in (tmp_path / "adapters" / "README.md").read_text()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"towers": 2}, "adapters alone cannot have document_trunk"),
        ({"projection": 8}, "adapters alone cannot have projection"),
        ({"special_tokens": 2}, "adapters alone cannot have tokens that the base lacks"),
    ],
)
def test_more_than_adapters_is_refused(
    toy_collection: Path, start: Path, tmp_path: Path, method: dict[str, Any], said: str
) -> None:
    if "special_tokens" in method:
        (start / "deepsiam.json").unlink()  # which says that its training added none
    trained = load_trained(write_adapters(tmp_path / "run", toy_collection, start, {"rank": 4}, method=method))
    with pytest.raises(InputError, match=said):
        export_encoder(trained, tmp_path / "out", form="adapters")
    assert not (tmp_path / "out").exists()


def test_a_run_as_the_base_is_refused(toy_collection: Path, tmp_path: Path) -> None:
    """It has no config.json, so no other library loads it."""
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    trained = load_trained(write_adapters(tmp_path / "run", toy_collection, start, {"rank": 4}))
    with pytest.raises(InputError, match="the base of these adapters is a run, .*: start from its export"):
        export_encoder(trained, tmp_path / "out", form="adapters")
    assert not (tmp_path / "out").exists()


def test_a_run_without_adapters_is_refused(toy_collection: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    with pytest.raises(InputError, match="was trained without adapters: leave out --format adapters"):
        export_encoder(load_trained(run), tmp_path / "out", form="adapters")
