"""An index searched from Python answers as `trainer.search`."""

from pathlib import Path

import numpy as np
import pytest

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import index, search
from tests.trainer.runs import write_run


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and an index of the toy collection."""
    folder = tmp_path_factory.mktemp("made")
    lengths = {"max_query_tokens": 8, "max_document_tokens": 16}
    write_run(folder / "run", toy_collection / "tokenizer.json", name="siamese", **lengths)
    index.main([str(folder / "run"), f"--collection={toy_collection}", f"--out={folder / 'index'}"])
    return folder


def test_it_finds_what_the_command_finds(made: Path, toy_collection: Path, tmp_path: Path) -> None:
    arguments = ["--queries=test", f"--write-run={tmp_path / 'a.trec'}", "--k=5", "--ignore-identical-ids=off"]
    search.main([str(made / "index"), *arguments])
    expected: dict[str, list[tuple[str, float]]] = {}
    for line in (tmp_path / "a.trec").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        expected.setdefault(query, []).append((document, float(np.float32(score))))
    collection, opened = Collection.open(toy_collection), deepsiam.open_index(str(made / "index"))
    queries = [collection.queries.text(collection.queries.ids.number(name)) for name in expected]
    found = opened.search(queries, 5)
    assert [[(hit.id, hit.score) for hit in hits] for hits in found] == [*expected.values()]
    assert found[0][0].text == collection.corpus.text(collection.corpus.ids.number(found[0][0].id))
    assert [hit.id for hit in opened.search(f" {queries[0]} ")][:5] == [hit.id for hit in found[0]]
    assert len(opened.search(queries[0], 1000)) == 120
    assert opened.search([], 5) == []


def test_what_is_refused(made: Path, toy_collection: Path, tmp_path: Path) -> None:
    opened = deepsiam.open_index(made / "index", toy_collection, made / "run")
    with pytest.raises(deepsiam.InputError, match=r"queries\[1\]: 5 is not a string"):
        opened.search(["a", 5], 3)  # type: ignore[list-item]
    with pytest.raises(deepsiam.InputError, match="k: 0 is no number of documents to find: give 1 or more"):
        opened.search("a", 0)
    with pytest.raises(deepsiam.InputError, match="--approximate centroids: .* has ivf, pq, hnsw|no such"):
        opened.search("a", 3, "centroids")
    with pytest.raises(deepsiam.InputError, match="not an index; run: python -m trainer.index"):
        deepsiam.open_index(tmp_path)
