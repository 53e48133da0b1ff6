"""An index as a Parquet table: read back, loaded into faiss, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.export import main
from deepsiam.trainer.index import main as index
from deepsiam.trainer.ranking.export import vectors_table
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 24}
DENSE = {"name": "siamese", "pooling": "mean", "similarity": "cosine", **LENGTHS}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_its_rows_are_the_ids_and_vectors_of_the_documents(
    toy_collection: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **DENSE)
    index([str(run), "--collection", str(toy_collection), "--out", str(tmp_path / "index"), "--dtype", dtype])
    capsys.readouterr()
    monkeypatch.setattr(vectors_table, "ROWS", 50)  # several groups
    out = tmp_path / "mine.parquet"
    main([str(tmp_path / "index"), str(out)])
    opened, collection = open_index(tmp_path / "index"), Collection.open(toy_collection)
    assert isinstance(opened, DenseIndex)
    width, stored = opened.vectors.width, np.float32 if dtype == "float32" else np.float16
    name = {np.float32: "float", np.float16: "halffloat"}[stored]
    assert capsys.readouterr().out == f"{out}: 120 vectors of {width} x {name}, with their ids\n"
    file = parquet.ParquetFile(out)
    assert file.metadata.num_row_groups == 3
    table = file.read()
    assert str(table.schema.field("vector").type) == f"fixed_size_list<element: {name}>[{width}]"
    assert table["id"].to_pylist() == list(collection.corpus.ids)
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False))
    assert vectors.dtype == stored
    assert np.array_equal(vectors, opened.vectors[opened.documents.rows])

    faiss = pytest.importorskip("faiss")
    flat = faiss.IndexFlatIP(width)
    flat.add(vectors.astype(np.float32))
    queries = opened.ranker.queries.embeddings(map(collection.queries.tokens, range(8)))
    scores, _ = flat.search(queries, 10)
    exact = opened.search_vectors(queries, 10)
    assert np.allclose(scores[:, 0], [ranked.scores[0] for ranked in exact], atol=1e-2)


def test_refused(
    toy_collection: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index(["bm25", "--collection", str(toy_collection), "--out", str(tmp_path / "bm25")])
    out = tmp_path / "out.parquet"
    assert "an index of kind bm25: only one vector per text makes a table" in refused(main, tmp_path / "bm25", out)
    assert "not an index" in refused(main, tmp_path, out)
    assert "--push: is for a model" in refused(main, tmp_path / "bm25", out, "--push", "owner/name")
    assert not out.exists()
