"""Every kind of folder and family: read as its library computes it, written by us, read by the library and us again."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.trainer.interop import cross_encoder, sparse
from deepsiam.trainer.interop.cross_encoder import HEADS
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from tests.trainer.interop import test_cross_encoder as pairs
from tests.trainer.interop import test_sparse as terms
from tests.trainer.interop.test_masked_lm import FAMILIES, publish

FACTS = {"name": "m", "kind": "k", "run": "r", "step": "1", "width": 1, "tokens": 1, "loader": "AutoModel"}
MODELS = {  # families beyond those of FAMILIES that have an LmHead, and keys of theirs
    **FAMILIES,
    **dict.fromkeys(("data2vec-text", "deberta", "deberta-v2", "megatron-bert", "xlm-roberta-xl"), dict[str, Any]()),
}
UNTYPED = ("albert", "bert", "electra")  # also as folders whose tokenizer gives no types


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "types"), [*((kind, kind in pairs.TYPED) for kind in sorted(HEADS)), *((kind, False) for kind in UNTYPED)]
)
def test_a_cross_encoder(toy_collection: Path, tmp_path: Path, kind: str, types: bool) -> None:
    folder = pairs.write_folder(tmp_path / "theirs", toy_collection / "tokenizer.json", kind, types=types)
    loaded = load_any(folder)
    scores = pairs.own_scores(loaded)
    np.testing.assert_allclose(scores, pairs.predicted(folder), atol=1e-5)
    loaded.model.activation = torch.nn.Identity()  # a run has none
    scores = pairs.own_scores(loaded)
    assert np.ptp(scores) > 0.01
    out = new_folder(tmp_path / "ours")
    method: Any = loaded.method
    cross_encoder.write(loaded, method, out, {**FACTS, "out": out})
    np.testing.assert_allclose(scores, pairs.predicted(out), atol=1e-5)
    np.testing.assert_array_equal(scores, pairs.own_scores(load_any(out)))


@pytest.mark.parametrize("kind", MODELS)
def test_a_masked_lm(tmp_path: Path, kind: str) -> None:
    library = pytest.importorskip("sentence_transformers")
    tokenizer = tokenizers.train(terms.QUERIES + terms.DOCUMENTS, 300, tmp_path / "tokenizer.json")
    folder = tmp_path / "theirs"
    publish(folder, kind, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad)
    shutil.copy(tokenizer.path, folder / "tokenizer.json")
    method = SparseConfig(name="sparse", max_query_tokens=20, max_document_tokens=20)

    def started(folder: Path) -> LoadedModel:
        encoder = load_encoder(Folder(folder), tokenizer)
        model = method.model(encoder.trunk)
        assert "5 of the 5 head weights" in encoder.fill_heads(model, method)
        return LoadedModel(model.eval(), method, tokenizer, folder)

    loaded = started(folder)
    out = new_folder(tmp_path / "ours")
    sparse.write(loaded, method, out, {**FACTS, "out": out})
    model = library.SparseEncoder(str(out), device="cpu", local_files_only=True)
    theirs = [model.encode_query(terms.QUERIES), model.encode_document(terms.DOCUMENTS)]
    again = terms.own_weights(started(out))
    for of_library, ours, ours_again in zip(theirs, terms.own_weights(loaded), again, strict=True):
        np.testing.assert_allclose(of_library.to_dense().numpy(), ours, atol=1e-5)
        np.testing.assert_array_equal(ours, ours_again)
        assert (ours > 0).any()
