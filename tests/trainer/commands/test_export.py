"""The command trainer.export."""

import json
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import index
from deepsiam.trainer.export import main
from deepsiam.trainer.ranking.export import export_anserini
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.rankers.sparse import Sparse
from tests.trainer.runs import STEP, write_run


def test_the_newest_checkpoint_is_exported_and_named(
    tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", shards / "tokenizer.json", name="seed", max_tokens=32)
    main([str(run), str(tmp_path / "out"), "--with-decoder"])
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-{STEP:08d} to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "decoder.safetensors").is_file()


def test_the_documents_of_a_sparse_index_are_written_for_anserini(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = {"max_query_tokens": 8, "max_document_tokens": 24}
    write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="sparse", **lengths)
    index.main([str(tmp_path / "run"), f"--collection={toy_collection}", f"--out={tmp_path / 'index'}"])
    main([str(tmp_path / "index"), str(tmp_path / "docs" / "out.jsonl"), "--format=anserini"])
    assert capsys.readouterr().out.endswith(f"of {tmp_path / 'index'} to {tmp_path / 'docs' / 'out.jsonl'}\n")
    lines = list(map(json.loads, (tmp_path / "docs" / "out.jsonl").read_text().splitlines()))
    collection = Collection.open(toy_collection)
    vocabulary, ranker = collection.tokenizer.vocabulary(), open_ranker(tmp_path / "run", collection)
    assert isinstance(ranker, Sparse)
    encoded = ranker.documents.vectors(map(collection.corpus.tokens, range(len(lines))))
    assert sorted(line["id"] for line in lines) == sorted(collection.corpus.ids)
    for line in lines:
        (document,) = collection.corpus.ids.find([line["id"]]).tolist()
        assert line["contents"] == collection.corpus.text(document)
        own = {int(term): float(weight) for term, weight in encoded.of(encoded.rows[document])}
        assert {vocabulary[term] for term in line["vector"]} <= own.keys()
        for term, weight in line["vector"].items():
            assert type(weight) is int
            assert weight == pytest.approx(100 * own[vocabulary[term]], abs=0.5 + 0.05 * own[vocabulary[term]])


def test_integer_weights_are_rounded_once(toy_collection: Path, tmp_path: Path) -> None:
    corpus = Collection.open(toy_collection).corpus
    terms = np.zeros(3, [("term", "<u2"), ("weight", "<f2")])
    terms["term"], terms["weight"] = [1, 2, 3], [2.574, 20.49, 700]
    export_anserini.write([(0, terms)], corpus, {"a": 1, "b": 2, "c": 3}, tmp_path / "out.jsonl")
    vector = json.loads((tmp_path / "out.jsonl").read_text())["vector"]
    assert vector == {name: round(100 * weight) for name, weight in zip("abc", terms["weight"].tolist(), strict=True)}


def test_only_a_sparse_index_is_written_for_anserini(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.main(["bm25", f"--collection={toy_collection}", f"--out={tmp_path / 'bm25'}"])
    for source, said in (("bm25", "is for an index of a sparse model, this is one of bm25"), ("none", "not an index")):
        with pytest.raises(SystemExit) as caught:
            main([str(tmp_path / source), str(tmp_path / "out.jsonl"), "--format=anserini"])
        assert caught.value.code == 2
        printed = capsys.readouterr().err
        assert said in printed.splitlines()[-1]
    assert not (tmp_path / "out.jsonl").exists()
