"""A published model ranks without training: an export like its run, with the lengths that the folder names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.packing import frame, pad
from deepsiam.models.pretraining.cross_thought import CrossThought
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.system import Embedded
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import write_run

METHOD: dict[str, Any] = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 16}


@pytest.fixture
def run(toy_collection: Path, tmp_path: Path) -> Path:
    return write_run(
        tmp_path / "run",
        toy_collection / "tokenizer.json",
        similarity="cosine",
        pooling="mean",
        temperature=0.1,
        **METHOD,
    )


@pytest.fixture
def published(run: Path, tmp_path: Path) -> Path:
    export_encoder(load_trained(run), tmp_path / "published")
    return tmp_path / "published"


def test_embeddings_are_those_of_the_run(run: Path, published: Path, toy_collection: Path) -> None:
    task = Task.of(Collection.open(toy_collection), "test")
    own, loaded = (ranker_of(model, task.collection).system(task) for model in (load_trained(run), load_any(published)))
    assert isinstance(own, Embedded)
    assert isinstance(loaded, Embedded)
    np.testing.assert_allclose(loaded.queries, own.queries, atol=1e-6)
    np.testing.assert_allclose(loaded.documents, own.documents, atol=1e-6)


def test_a_cross_thought_run_ranks_by_its_embeddings_without_fine_tuning(toy_collection: Path, tmp_path: Path) -> None:
    keys = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
    trained = load_trained(write_run(tmp_path / "run", toy_collection / "tokenizer.json", **keys))
    task = Task.of(Collection.open(toy_collection), "test")
    embedded = ranker_of(load_any(tmp_path / "run"), task.collection).system(task)
    assert isinstance(embedded, Embedded)
    assert isinstance(trained.model, CrossThought)
    longest = trained.text_tokens
    for vectors, texts, numbers in (
        (embedded.queries, task.collection.queries, task.queries),
        (embedded.documents, task.collection.corpus, task.pool),
    ):
        rows, mask = pad([frame(texts.tokens(i), trained.tokenizer, longest) for i in numbers], longest, 0)
        with torch.no_grad():
            own = trained.model.embed_documents(torch.from_numpy(rows).long(), torch.from_numpy(mask)).vectors[:, 0]
        np.testing.assert_allclose(vectors, own.numpy(), atol=1e-5)


def test_it_is_evaluated_beside_a_run(run: Path, published: Path, toy_collection: Path, tmp_path: Path) -> None:
    models = [f"--system=run={run}", f"--system=folder={published}"]
    out = tmp_path / "results.json"
    evaluate.main(["--collection", str(toy_collection), "--split", "test", "--out", str(out), *models])
    results = json.loads(out.read_text())
    systems = results["systems"]
    assert systems["folder"]["metrics"] == systems["run"]["metrics"]
    (stage,) = systems["folder"]["stages"]
    assert stage["checkpoint"] == str(published)
    assert stage["max_tokens"] == {"query": 16, "document": 16}


def test_without_a_length_the_trunk_says_how_much_is_read(published: Path) -> None:
    (published / "sentence_bert_config.json").unlink()
    (published / "deepsiam.json").unlink()
    config = published / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": None}))
    method: Any = load_any(published).method
    assert (
        method.max_query_tokens
        == method.max_document_tokens
        == load_any(published).model.trunk.config.max_position_embeddings
    )


@pytest.mark.parametrize("tokens", ["many", 2, [1], True, 16.5, float("nan")])
@pytest.mark.parametrize(
    ("file", "key"), [("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")]
)
def test_a_length_that_is_none_is_refused(published: Path, file: str, key: str, tokens: Any) -> None:
    (published / "sentence_bert_config.json").unlink()
    (published / file).write_text(json.dumps({key: tokens}))
    with pytest.raises(InputError, match=f"{file}: {key} is .* not a number of tokens"):
        load_any(published)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "1_Pooling/config.json"])
def test_a_file_of_another_kind_is_refused(published: Path, name: str) -> None:
    (published / name).write_text("[]")
    with pytest.raises(InputError, match="not its kind of JSON"):
        load_any(published)


def test_an_encoder_that_does_not_say_how_to_compare_is_refused(
    published: Path, toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (published / "modules.json").unlink()
    given = [f"--collection={toy_collection}", "--split=test", f"--out={tmp_path / 'r.json'}"]
    assert "an encoder without a pooling" in refused(evaluate.main, *given, f"--system=a={published}")
