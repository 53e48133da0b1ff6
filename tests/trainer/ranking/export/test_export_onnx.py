"""ONNX exports, run by onnxruntime as their README.md says, against the trainer's embeddings and scores."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.siamese import Siamese
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.export.export_onnx import _difference, _graphs
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.runs import write_run

TEXTS = ["abc de fghij", "", "a [MASK] and a [SEP] that are text", "unknown ☃ 漢字", " ".join(["long"] * 100)]


def readme_code(out: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"pooling": "mean", "similarity": "cosine"},
        # a SentenceTransformer cannot represent this
        {"special_tokens": 3, "projection": 8, "towers": 2, "kept_of_query": "end"},
    ],
    ids=["plain", "special_tokens"],
)
def test_a_siamese_graph_gives_the_trainers_embeddings(
    tmp_path: Path, toy_collection: Path, keys: dict[str, Any]
) -> None:
    pytest.importorskip("onnxruntime")
    lengths = {"max_query_tokens": 24, "max_document_tokens": 24}
    trained = load_trained(
        write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese", **lengths, **keys)
    )
    out = tmp_path / "out"
    export_encoder(trained, out, form="onnx")
    assert isinstance(trained.model, Siamese)
    sides = {"model": trained.model.embed_documents}
    if keys.get("towers") == 2:
        sides = {"document": trained.model.embed_documents, "query": trained.model.embed_queries}
    assert {path.stem for path in out.glob("*.onnx")} == set(sides)
    for side, embed in sides.items():
        code = readme_code(out).replace('["a document", "another"]', "TEXTS").replace("document.onnx", f"{side}.onnx")
        variables: dict[str, Any] = {"TEXTS": TEXTS}
        exec(code, variables)
        framing = trained.method.document_framing(trained.tokenizer)  # type: ignore[attr-defined]
        own = TextEncoder(embed, framing).embeddings(trained.tokenizer.encode(TEXTS))
        np.testing.assert_allclose(variables["outputs"], own, atol=1e-5)
        assert np.ptp(own, axis=0).max() > 0.1
    assert not list(out.glob("*.safetensors"))
    assert ("the last 24 tokens of a query" in (out / "README.md").read_text()) == ("kept_of_query" in keys)


@pytest.mark.slow
def test_a_cross_encoders_graph_gives_the_trainers_scores(tmp_path: Path, toy_collection: Path) -> None:
    pytest.importorskip("onnxruntime")
    method = {"name": "cross_encoder", "loss": "classes", "classes": 3, "max_query_tokens": 20}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **method, max_document_tokens=20)
    trained, out = load_trained(run), tmp_path / "out"
    export_encoder(trained, out, form="onnx")
    variables: dict[str, Any] = {}
    exec(readme_code(out), variables)
    queries, documents = (trained.tokenizer.encode(texts) for texts in (["a query"] * 2, ["a document", "another"]))
    arrays = trained.method.pair_framing(trained.tokenizer).arrays(queries, documents)  # type: ignore[attr-defined]
    with torch.no_grad():
        own = trained.model.score_pairs(**{name: torch.from_numpy(array) for name, array in arrays.items()})  # type: ignore[operator]
    np.testing.assert_allclose(variables["outputs"], own, atol=1e-5)
    assert own.shape == (2, 3)


class Recorded:
    """In place of onnxruntime's session: records what a graph is run on, and gives the run's own outputs."""

    runs: list[dict[str, np.ndarray]]

    def __init__(self, graph: torch.nn.Module) -> None:
        self.graph, self.runs = graph, []

    def __call__(self, path: str, providers: list[str]) -> "Recorded":
        return self

    def run(self, outputs: None, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.runs.append(arrays)
        with torch.no_grad():
            return [self.graph(*map(torch.from_numpy, arrays.values())).numpy()]


@pytest.mark.parametrize("method", [{"name": "siamese"}, {"name": "cross_encoder", "loss": "binary"}])
def test_a_graph_is_tried_on_inputs_that_a_text_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: dict[str, Any]
) -> None:
    """RoBERTa numbers the positions by where <pad> is, which no text contains."""
    onnxruntime = pytest.importorskip("onnxruntime")
    words = ["abcdefghij"[i % 10] * (i % 5 + 1) for i in range(500)]
    tokenizer_json = tokenizers.train(words, 280, tmp_path / "tokenizer.json", "bpe").path
    roberta = {**toy.TRUNK, "model_type": "roberta", "max_position_embeddings": 66}
    lengths = {"max_query_tokens": 24, "max_document_tokens": 40}
    trained = load_trained(write_run(tmp_path / "run", tokenizer_json, trunk=roberta, **method, **lengths))
    (graph,) = _graphs(trained).values()
    recorded = Recorded(graph)
    monkeypatch.setattr(onnxruntime, "InferenceSession", recorded)
    assert isinstance(trained.method, MatchingConfig)
    assert _difference(trained, trained.method, graph, tmp_path / "model.onnx") == 0
    tokenizer = trained.tokenizer
    for arrays in recorded.runs:
        for ids, mask in zip(arrays["input_ids"], arrays["attention_mask"].astype(bool), strict=True):
            text, padding = ids[mask].tolist(), ids[~mask]
            assert (text[0], text[-1]) == (tokenizer.cls, tokenizer.sep)
            assert set(text[1:-1]) & set(tokenizer.special) <= {tokenizer.sep}  # between the texts of a pair
            assert set(padding.tolist()) <= {tokenizer.pad}
    longest = max(trained.method.input_lengths.values())
    assert max(arrays["input_ids"].shape[1] for arrays in recorded.runs) == longest
    assert len({arrays["input_ids"].shape for arrays in recorded.runs}) == len(recorded.runs) == 3


def test_a_graph_that_differs_and_missing_packages_are_refused(
    tmp_path: Path, toy_collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer_json = toy_collection / "tokenizer.json"
    plain = load_trained(write_run(tmp_path / "plain", tokenizer_json, name="siamese", max_document_tokens=16))
    monkeypatch.setattr("deepsiam.trainer.ranking.export.export_onnx._export", lambda graph, path: None)
    monkeypatch.setattr("deepsiam.trainer.ranking.export.export_onnx._difference", lambda *_: 1e-3)
    with pytest.raises(InputError, match=r"model.onnx: its outputs differ from the run's by 1.0e-03"):
        export_encoder(plain, tmp_path / "out", form="onnx")
    monkeypatch.setattr("deepsiam.data_prep.common.extras.find_spec", lambda package: None)
    with pytest.raises(InputError, match="--format onnx needs a package that is not installed: onnx, onnxscript"):
        export_encoder(plain, tmp_path / "out", form="onnx")
    assert not (tmp_path / "out").exists()
