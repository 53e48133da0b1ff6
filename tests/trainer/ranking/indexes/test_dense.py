"""A dense index: block-wise search against a plain product, rows of blocks, precision, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import train
from deepsiam.trainer import search
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.runs import write_run


@given(st.integers(0, 47), st.integers(0, 60), st.lists(st.integers(0, 46)))
def test_rows_of_blocks_are_those_of_one_array(start: int, length: int, places: list[int]) -> None:
    whole = np.arange(47 * 3, dtype=np.float32).reshape(47, 3)
    blocks = Blocks([whole[:20], whole[20:23], whole[23:23], whole[23:]])
    assert len(blocks) == 47
    if start < 47:
        np.testing.assert_array_equal(blocks[start : start + length], whole[start : start + length])
    np.testing.assert_array_equal(blocks[np.array(places, np.int64)], whole[places])
    for rank in range(3):
        share = blocks.share(rank, 3)
        own = np.arange(len(share))
        np.testing.assert_array_equal(share[own], whole[share.numbers(own)])


def test_vectors_that_are_not_finite_are_refused(kinds: Kinds, copies: Collection, tmp_path: Path) -> None:
    model = load_trained(kinds.runs["dense"][0])
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.fill_(np.nan)
    with pytest.raises(InputError, match=r"encode 000000.npy: the model's embeddings are not finite"):
        DenseIndex.build(ranker_of(model, copies), tmp_path / "index")
    assert not list((tmp_path / "index" / "blocks").iterdir())


def test_queries_have_the_precision_of_the_documents(kinds: Kinds, copies: Collection, tmp_path: Path) -> None:
    DenseIndex.build(open_ranker(kinds.runs["dense"][0], copies, "bf16"), tmp_path / "index")
    ranker = open_index(tmp_path / "index").ranker
    assert isinstance(ranker, ModelRanker)
    assert ranker.precision == "bf16"


def test_a_student_searches_its_teachers_vectors(
    kinds: Kinds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The student has another width, with a layer to the teacher's, and another tokenizer."""
    index = kinds.made["dense"]
    assert isinstance(index, DenseIndex)
    texts = [*index.collection.corpus.texts()][:50]
    tokenizer = train(texts, 300, tmp_path / "tokenizer.json")
    trunk = {**toy.TRUNK, "hidden_size": 16, "vocab_size": tokenizer.vocab_size}
    keys = {"pooling": "mean", "projection": index.vectors.width, "max_query_tokens": 12}
    student = write_run(tmp_path / "run", tokenizer.path, seed=5, trunk=trunk, name="siamese", **keys)
    folder, queries = index.folder.directory, [" ".join(text.split()[:4]) for text in texts[:9]]
    found = open_index(folder, query_model=student).search(queries, 5)
    scores = deepsiam.load(student).encode_query(queries) @ np.concatenate(index.vectors.arrays).T
    rows = dict(zip(index.collection.corpus.ids, index.documents.rows.tolist(), strict=True))  # of documents' vectors
    for hits, row in zip(found, scores, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([row[rows[hit.id]] for hit in hits], rel=1e-4)
        assert hits[0].score == pytest.approx(row.max(), rel=1e-4)
    search.main([str(folder), "--query-model", str(student), queries[0]])
    assert found[0][0].id in capsys.readouterr().out
