"""An exported sparse model, which sentence-transformers loads as a SparseEncoder, against the trainer's weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests.trainer.runs import write_run

QUERIES = ["abc de fghij", "", "a [MASK] (and) a [SEP] the abc", "unknown ☃ 漢字"]
DOCUMENTS = ["Upper CASE, naïve café!", "abc - de; fghij.", "a ☃", " ".join(["gh, ij"] * 60)]
METHODS: dict[str, dict[str, Any]] = {
    "splade": {},
    "sum": {"pooling": "sum"},
    "doc": {"query": "tokens"},
    "lexical": {"query": "own_tokens", "document": "own_tokens"},
    "lexical documents": {"document": "own_tokens"},
    "tokens of both": {"query": "tokens", "document": "own_tokens"},
    "towers": {"towers": 2},
    "prompts": {"query": "own_tokens", "query_prompt": "abc:", "document_prompt": "de "},
}


def own_weights(trained: TrainedModel) -> list[np.ndarray]:
    """The run's weights of queries and of documents, [n, V]."""
    model: Any = trained.model
    method: Any = trained.method
    sides = [
        (model.embed_queries, method.query_framing(trained.tokenizer), QUERIES),
        (model.embed_documents, method.document_framing(trained.tokenizer), DOCUMENTS),
    ]
    return [TextEncoder(embed, of).embeddings(trained.tokenizer.encode(texts)) for embed, of, texts in sides]


@pytest.mark.parametrize("name", METHODS)
def test_its_loader_gives_the_trainers_weights_and_scores(tmp_path: Path, name: str) -> None:
    library = pytest.importorskip("sentence_transformers")
    tokenizer_json = tokenizers.train(QUERIES + DOCUMENTS, 300, tmp_path / "tokenizer.json").path
    lengths = {"max_query_tokens": 20, "max_document_tokens": 20}
    run = write_run(tmp_path / "run", tokenizer_json, name="sparse", **lengths, **METHODS[name])
    trained = load_trained(run)
    export_encoder(trained, tmp_path / "out")
    model = library.SparseEncoder(str(tmp_path / "out"), device="cpu", local_files_only=True)
    sides = model.encode_query(QUERIES), model.encode_document(DOCUMENTS)
    own = own_weights(trained)
    if METHODS[name].get("query") == "tokens":
        assert own[0].max() > 1
        own[0] = np.minimum(own[0], 1)  # as the card says, a repeated token counts once
    for theirs, ours in zip(sides, own, strict=True):
        np.testing.assert_allclose(theirs.to_dense().numpy(), ours, atol=1e-5)
        assert (ours > 0).any()
        assert not ours[:, list(trained.tokenizer.special)].any()
    np.testing.assert_allclose(model.similarity(*sides), own[0] @ own[1].T, atol=1e-4)


def test_the_card_says_that_a_repeated_token_counts_once(tmp_path: Path) -> None:
    tokenizer_json = tokenizers.train(QUERIES + DOCUMENTS, 300, tmp_path / "tokenizer.json").path
    for query in ("tokens", "encoder"):
        run = write_run(tmp_path / query, tokenizer_json, name="sparse", query=query)
        export_encoder(load_trained(run), tmp_path / "out")
        card = (tmp_path / "out" / "README.md").read_text()
        assert f'SparseEncoder("{tmp_path / "out"}")' in card
        assert ("counts a token once" in card) == (query == "tokens")
