"""What every export must do, whatever kind of run it is of; what a kind cannot express is refused in one table."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests import toy
from tests.trainer.runs import STEP, write_adapters, write_run

ELECTRA = {"model_type": "electra", "embedding_size": toy.TRUNK["hidden_size"]}
PRE_NORM = {"model_type": "roberta-prelayernorm"}
EUROBERT = {"model_type": "eurobert"}
QWEN2 = {"model_type": "qwen2", "num_key_value_heads": 2}  # its tokenizer is chosen by its type alone
BOTH_WAYS = {"name": "mlm", "trunk": {**QWEN2, "is_causal": False}}
LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 24}
LABELS = {"name": "label_ranker", "loss": "rank_net", "max_prompt_tokens": 4000, "trunk": {"model_type": "llama"}}
KINDS: dict[str, dict[str, Any]] = {
    "siamese": {"name": "siamese", "similarity": "cosine", **LENGTHS},
    "colbert": {"name": "colbert", "dimension": 16, **LENGTHS},
    "poly_encoder": {"name": "poly_encoder", "m": 4, **LENGTHS},
    "cross_encoder": {"name": "cross_encoder", "loss": "binary", **LENGTHS},
    "sparse": {"name": "sparse", **LENGTHS},
    "seed": {"name": "seed", "max_tokens": 24},
    "cross_thought": {"name": "cross_thought", "sequences": 4, "sequence_tokens": 6, "special_tokens": 3},
}
LOADED_BY = {
    "siamese": "SentenceTransformer",
    "colbert": "models.ColBERT",
    "cross_encoder": "CrossEncoder",
    "sparse": "SparseEncoder",
}
LINEAR = {"query": "tokens", "document": "own_tokens", "head": "linear"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [  # keys of the method; `with_decoder`, of the export
    ("siamese", {"special_tokens": 3}, "a SentenceTransformer cannot pool several special tokens; use the run"),
    ("siamese", {"pooling": "first_m", "pooled_states": 2}, "cannot pool the first states alone; use the run"),
    ("siamese", {"projection": 4}, "cannot have a projection with LayerNorm; use the run"),
    ("siamese", {"towers": 2}, r"cannot have an encoder of documents alone \(method.towers=2\); use the run"),
    ("siamese", {"document_chunks": 2}, "cannot read documents in chunks; use the run"),
    ("siamese", {"kept_of_query": "end"}, r"cannot keep the end of a query alone \(method.kept_of_query\); use"),
    ("siamese", {"with_decoder": True}, "no decoder"),
    ("siamese", {"trunk": QWEN2, "pooling": "last"}, "reads texts otherwise .* 'qwen2': use the run$"),
    ("cross_encoder", {"trunk": PRE_NORM}, "classifier cannot have a trunk of roberta-pre.*; use the run"),
    ("cross_encoder", {"trunk": ELECTRA}, "ElectraForSequence.* cannot have another hidden layer.*; use"),
    ("cross_encoder", {"pooling": "mean"}, "BertForSequenceClassification cannot pool all states.*; use the run"),
    ("cross_encoder", {"hidden_layer": False}, "BertFor.* cannot do without a hidden layer.*; use the run"),
    ("cross_encoder", {"kept_of_query": "end"}, "BertFor.* cannot keep the end of a text.*; use the run"),
    ("cross_encoder", {"name": "duobert", "hard_negatives": 1}, "no library loads a duobert; use the run"),
    ("cross_encoder", LABELS, "no library loads a label_ranker; use the run"),
    ("colbert", {"towers": 2}, "PyLate cannot .*an encoder of documents alone.*; use the run"),
    ("colbert", {"kept_of_query": "end"}, "PyLate cannot .*keep the end of a query alone.*; use the run"),
    ("poly_encoder", {"query_prompt": "abc "}, "tokenizer cannot keep a prompt and the end of a query .*use the run"),
    ("sparse", {"trunk": EUROBERT}, "a SparseEncoder cannot have a masked LM of eurobert; use the run"),
    ("sparse", LINEAR, r"a SparseEncoder cannot weigh tokens by a linear layer \(method.head=linear\); use the run"),
    ("sparse", {"kept_of_query": "end"}, "a SparseEncoder cannot keep the end of a query.*; use the run"),
    ("seed", BOTH_WAYS, "reads texts otherwise .*'qwen2': use the run$"),
    ("seed", {"name": "ict", "with_decoder": True}, "ict trains only the encoder"),
]


def run_of(folder: Path, collection: Path, kind: str, **changes: Any) -> TrainedModel:
    """A run of a kind, with changes to its method; `trunk` has keys of the encoder."""
    trunk = {**toy.TRUNK, **changes.pop("trunk", {})}
    return load_trained(write_run(folder, collection / "tokenizer.json", trunk=trunk, **{**KINDS[kind], **changes}))


Exported = tuple[str, TrainedModel, Path]


@pytest.fixture(scope="module", params=KINDS)
def exported(
    request: pytest.FixtureRequest, toy_collection: Path, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    """A run of each kind, and its export."""
    folder = tmp_path_factory.mktemp(request.param)
    trained = run_of(folder / "run", toy_collection, request.param)
    export_encoder(trained, folder / "out")
    return request.param, trained, folder / "out"


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_card_and_the_mark_name_run_and_step(exported: Exported) -> None:
    kind, _, out = exported
    card = (out / "README.md").read_text()
    assert str(out.with_name("run")) in card
    assert LOADED_BY.get(kind, "AutoModel.from_pretrained") + f'("{out}"' in card
    assert not list(out.glob("decoder*"))  # which is exported on request only
    assert f"step {STEP}" in card
    assert json.loads((out / "deepsiam.json").read_text())["step"] == STEP
    assert len({path.stat().st_mode for path in out.glob("*.*")}) == 1


def test_a_run_can_start_from_it(exported: Exported) -> None:
    _, trained, out = exported
    start = load_encoder(Folder(out), trained.tokenizer)
    own = trained.model.trunk.state_dict()
    assert start.trunk.state_dict().keys() == own.keys()
    for name, tensor in start.trunk.state_dict().items():
        torch.testing.assert_close(tensor[: len(own[name])], own[name][: len(tensor)], rtol=0, atol=0)


def test_an_earlier_export_is_replaced_and_nothing_else_unless_it_fails(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, trained, _), out = exported, tmp_path / "out"
    out.mkdir()  # empty
    export_encoder(trained, out)
    first = files_of(out)
    (out / "sub").mkdir()
    (out / "sub" / "stale").touch()
    export_encoder(trained, out)
    assert files_of(out) == first
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    for taken in ("full", "file"):
        with pytest.raises(InputError, match="exists and is not an earlier export"):
            export_encoder(trained, tmp_path / taken)

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deepsiam.trainer.interop.files.save", full_disk)
    with pytest.raises(InputError, match="No space left"):
        export_encoder(trained, out)
    assert files_of(out) == first
    assert os.listdir(tmp_path / "full") == ["thesis.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "full", "file"}


@pytest.mark.parametrize(("kind", "keys", "message"), REFUSED)
def test_what_the_export_cannot_express_is_refused(
    toy_collection: Path, tmp_path: Path, kind: str, keys: dict[str, Any], message: str
) -> None:
    method = {key: value for key, value in keys.items() if key != "with_decoder"}
    trained = run_of(tmp_path / "run", toy_collection, kind, **method)
    with pytest.raises(InputError, match=message):
        export_encoder(trained, tmp_path / "out", with_decoder="with_decoder" in keys)
    assert not (tmp_path / "out").exists()


TEXTS = ["abc de fgh", "a", "jjj abc" * 30, ""]


@pytest.fixture
def start(toy_collection: Path, tmp_path: Path) -> Path:
    """The base of adapters."""
    pytest.importorskip("peft")  # an extra
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
    from peft import PeftModel

    trained = load_trained(write_adapters(tmp_path / "run", toy_collection, start, {"rank": 4}))
    export_encoder(trained, tmp_path / "adapters", form="adapters")
    export_encoder(trained, tmp_path / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "adapters")
    tokens = tokenizer(TEXTS, truncation=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        own = trained.model.embed_documents(tokens["input_ids"], tokens["attention_mask"].bool())  # type: ignore[operator]
    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(start), tmp_path / "adapters")
    assert [name for name, p in theirs.named_parameters() if "lora_B" in name and not p.any()] == []
    for model in (theirs, AutoModel.from_pretrained(tmp_path / "merged")):
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
        ({}, "the base of these adapters is a run, .*: start from its export"),  # no other library loads it
    ],
)
def test_more_than_adapters_of_a_folder_is_refused(
    toy_collection: Path, start: Path, tmp_path: Path, method: dict[str, Any], said: str
) -> None:
    (start / "deepsiam.json").unlink()  # which says that its training added no tokens
    base = start if method else tmp_path / "pretrained"
    trained = load_trained(write_adapters(tmp_path / "run", toy_collection, base, {"rank": 4}, method=method))
    with pytest.raises(InputError, match=said):
        export_encoder(trained, tmp_path / "out", form="adapters")
    assert not (tmp_path / "out").exists()
