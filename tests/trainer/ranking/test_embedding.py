"""trainer.embed: each text's vector by its key, for any number of ranks and after a stop; what is refused."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.batching.candidates import text_key
from deepsiam.models.pretraining.distil import taught_pairs
from deepsiam.trainer import embed
from deepsiam.trainer.ranking import embedding
from deepsiam.trainer.training.data.teacher import MANIFEST, TeacherVectors
from tests import toy
from tests.trainer.ranking.indexes.five_blocks import tree
from tests.trainer.runs import write_run

METHOD: dict[str, Any] = {"name": "siamese", "pooling": "mean", "similarity": "cosine", "query_prompt": "ab "}
LENGTHS = {"max_query_tokens": 12, "max_document_tokens": 24}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with another tokenizer than the texts'."""
    folder = tmp_path_factory.mktemp("teacher")
    texts = (sentence for text in toy.documents(200, seed=8) for sentence in text)
    tokenizers.train(texts, 180, folder / "tokenizer.json")
    return write_run(folder / "run", folder / "tokenizer.json", **METHOD, **LENGTHS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "BLOCK", 50)


def vectors_of(folder: Path, side: str, tokens: list[np.ndarray]) -> np.ndarray:
    return TeacherVectors.open(folder).vectors(side, np.array([text_key(text) for text in tokens]))


def test_every_text_of_a_collection_and_of_shards_has_its_teachers_vector(
    teacher: Path, toy_collection: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vectors"
    embed.main([str(teacher), str(toy_collection), str(shards), "--passage-tokens=32", f"--out={out}"])
    (line,) = capsys.readouterr().out.splitlines()
    model, collection = deepsiam.load(teacher), Collection.open(toy_collection)
    encode = {"query": model.encode_query, "document": model.encode_document}
    assert f"{len(TeacherVectors.open(out).keys):,} texts, 32 x float16 each" in line
    for side, texts in (("query", collection.queries), ("document", collection.corpus)):
        ours = vectors_of(out, side, [texts.tokens(i) for i in range(len(texts))])
        theirs = encode[side]([texts.text(i) for i in range(len(texts))])
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
    tokenizer, manifest = tokenizers.load(shards / "tokenizer.json"), Manifest.load(shards)
    pairs = [pair for document in Shard.open(manifest, 0).documents() for pair in taught_pairs(document, 32)]
    assert len(pairs) > 10
    for number, side in enumerate(("query", "document")):
        ours = vectors_of(out, side, [pair[number] for pair in pairs])
        theirs = encode[side]([tokenizer.decode(pair[number]) for pair in pairs])
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_a_stopped_command_goes_on_to_the_same_bytes_and_so_do_two_ranks(
    teacher: Path, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [str(teacher), str(toy_collection)]
    embed.main([*command, f"--out={tmp_path / 'whole'}"])
    expected = tree(tmp_path / "whole")
    assert not (tmp_path / "whole" / "keys").exists()  # of each block, until all are there
    assert len([name for name in expected if name.startswith("blocks/")]) == 6  # of 120 documents and 120 queries

    class StopError(Exception): ...

    def stop(name: Path, array: np.ndarray) -> None:
        if name.name == "000003.npy" and name.parent.name == "blocks":
            raise StopError
        save(name, array)

    save = embedding.save_array
    monkeypatch.setattr(embedding, "save_array", stop)
    with pytest.raises(StopError):
        embed.main([*command, f"--out={tmp_path / 'stopped'}"])
    monkeypatch.setattr(embedding, "save_array", save)
    assert not (tmp_path / "stopped" / MANIFEST).exists()
    with pytest.raises(InputError, match="no finished folder"):
        TeacherVectors.open(tmp_path / "stopped")
    # the rest by the second of two ranks, then by the first
    arguments = embed.parser().parse_args([*command, f"--out={tmp_path / 'stopped'}"])
    source, ranker = embedding.Source.open(toy_collection, 256), embedding._teacher(arguments)
    writer = embedding.Writer(ranker, source.parts, arguments.out)
    for rank in (1, 0):
        writer.write_blocks(rank, 2)
    embed.main([*command, f"--out={tmp_path / 'stopped'}"])
    assert tree(tmp_path / "stopped") == expected


def test_the_first_numbers_alone_are_kept_and_a_folder_of_other_inputs_is_left_as_it_is(
    teacher: Path,
    shards: Path,
    toy_collection: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    command = [str(teacher), str(toy_collection), f"--out={tmp_path / 'vectors'}"]
    embed.main([*command, "--dimensions=8"])
    before, queries = tree(tmp_path / "vectors"), Collection.open(toy_collection).queries
    theirs = deepsiam.load(teacher).encode_query([queries.text(i) for i in range(9)], dimensions=8)
    ours = vectors_of(tmp_path / "vectors", "query", [queries.tokens(i) for i in range(9)])
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    embed.main([*command, "--dimensions=8"])
    assert "complete already" in capsys.readouterr().out
    for other in (["--dimensions=8", "--document-prompt=c "], [], ["--dimensions=8", "--passage-tokens=100"]):
        assert "was made from another model, texts" in refused(embed.main, *command, *other)
    assert tree(tmp_path / "vectors") == before

    colbert = write_run(tmp_path / "colbert", shards / "tokenizer.json", name="colbert", dimension=8, **LENGTHS)
    out = f"--out={tmp_path / 'out'}"
    assert "has no one vector for a text" in refused(embed.main, colbert, shards, out)
    others = toy.write_shards(tmp_path / "other", count=20, seed=5)
    assert "another tokenizer" in refused(embed.main, teacher, shards, others, out)


@pytest.mark.parametrize(("value", "problem"), [(0.0, "zero"), (1e9, "not finite as float16")])
def test_vectors_that_are_zero_or_not_finite_are_refused(
    teacher: Path,
    toy_collection: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    value: float,
    problem: str,
) -> None:
    def embedded(texts: Any, metered: bool) -> np.ndarray:
        vectors = np.ones((len(list(texts)), 32), np.float32)
        vectors[2] = value
        return vectors

    monkeypatch.setattr(embedding.DenseRanker, "documents", SimpleNamespace(embeddings=embedded))
    first = Collection.open(toy_collection).corpus.text(2)
    words = f"such as that of {first[:50]!r}, which is {problem}"
    assert words in refused(embed.main, teacher, toy_collection, f"--out={tmp_path / 'out'}")
