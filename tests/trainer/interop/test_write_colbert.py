"""An exported ColBERT, which sentence-transformers loads from PyLate's layout, against the trainer's scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.matching.colbert import Colbert
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests.trainer.runs import write_run

QUERIES = ["abc de fghij", "", "a [MASK] (and) [Q] a [SEP]", "unknown ☃ 漢字", " ".join(["long"] * 50)]
DOCUMENTS = ["Upper CASE, naïve café!", "abc - de; fghij.", "[D] a ☃", " ".join(["gh, ij"] * 60)]
METHOD = {"name": "colbert", "dimension": 16, "max_query_tokens": 12, "max_document_tokens": 20}


def own_vectors(trained: TrainedModel) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The run's vectors of each query and of each document, [m, 16]."""
    model, method = trained.model, trained.method
    assert isinstance(model, Colbert)
    sides = []
    for embed, framing, texts in (
        (model.embed_queries, method.query_framing(trained.tokenizer), QUERIES),  # type: ignore[attr-defined]
        (model.embed_documents, method.document_framing(trained.tokenizer), DOCUMENTS),  # type: ignore[attr-defined]
    ):
        vectors = TextEncoder(embed, framing).vectors(trained.tokenizer.encode(texts))
        starts = np.append(0, vectors.ends)
        sides.append([vectors.flat[starts[row] : starts[row + 1]] for row in vectors.rows])
    return sides[0], sides[1]


def load_run(folder: Path, kind: str = "wordpiece", **changes: object) -> TrainedModel:
    """A run whose tokenizer has punctuation."""
    tokenizer_json = tokenizers.train(QUERIES + DOCUMENTS, 300, folder / "tokenizer.json", kind).path
    return load_trained(write_run(folder / "run", tokenizer_json, **{**METHOD, **changes}))


@pytest.mark.parametrize("prompts", [{}, {"query_prompt": "abc:", "document_prompt": "de "}], ids=["", "prompts"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_its_loader_gives_the_trainers_vectors_and_scores(tmp_path: Path, kind: str, prompts: dict[str, str]) -> None:
    library = pytest.importorskip("sentence_transformers")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("this sentence-transformers does not read PyLate's layout")
    trained = load_run(tmp_path, kind, **prompts)
    export_encoder(trained, tmp_path / "out")
    model = library.MultiVectorEncoder(str(tmp_path / "out"), device="cpu", local_files_only=True)
    queries, documents = model.encode_query(QUERIES), model.encode_document(DOCUMENTS)
    for theirs, own in zip((queries, documents), own_vectors(trained), strict=True):
        assert [len(vectors) for vectors in theirs] == [len(vectors) for vectors in own]
        for one, other in zip(theirs, own, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    own_queries, own_documents = own_vectors(trained)
    own_scores = [[(q @ d.T).max(axis=1).sum() for d in own_documents] for q in own_queries]
    np.testing.assert_allclose(model.similarity(queries, documents), own_scores, atol=1e-4)
    assert np.ptp(own_scores) > 0.1


def test_the_files_are_those_of_pylate(tmp_path: Path) -> None:
    trained, out = load_run(tmp_path), tmp_path / "out"
    export_encoder(trained, out)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Dense"]
    settings = json.loads((out / "config_sentence_transformers.json").read_text())
    lengths = {"query_length": 12, "document_length": 20}
    flags = {"model_type": "ColBERT", "do_query_expansion": True, "attend_to_expansion_tokens": True}
    assert {key: settings[key] for key in (*lengths, *flags)} == {**lengths, **flags}
    tokenizer, size = AutoTokenizer.from_pretrained(out), trained.tokenizer.vocab_size
    prefixes = [settings["query_prefix"], settings["document_prefix"]]
    assert tokenizer.convert_tokens_to_ids(prefixes) == [size, size + 1]
    assert len(tokenizer) == size + 2
    skipped = tokenizer.convert_tokens_to_ids(settings["skiplist_words"])
    assert sorted(skipped) == sorted(trained.tokenizer.punctuation)
    assert skipped
    weights = load_file(out / "1_Dense" / "model.safetensors")
    assert torch.equal(weights["linear.weight"], trained.model.heads["projection.weight"])
    assert json.loads((out / "1_Dense" / "config.json").read_text())["in_features"] == weights["linear.weight"].shape[1]
    assert f'models.ColBERT("{out}")' in (out / "README.md").read_text()


def test_ids_with_gaps_are_refused(tmp_path: Path) -> None:
    path = tokenizers.train(QUERIES + DOCUMENTS, 300, tmp_path / "trained.json").path
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] += 1  # no token has its former id
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    trained = load_trained(write_run(tmp_path / "run", tmp_path / "tokenizer.json", **METHOD))
    with pytest.raises(InputError, match="its ids have gaps"):
        export_encoder(trained, tmp_path / "out")
