"""A collection with the texts of another and new candidates: linked or copied, verified, never over foreign files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection, verify
from deepsiam.data_prep.collections.derive import NewCandidates, derive, expand
from deepsiam.data_prep.collections.relevant import ARRAYS, Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

MINED = NewCandidates(
    np.array([0, 1]),
    np.array([3, 4]),
    np.array([0, 1, 2, 2]),
    np.array([1, 0, 0, 2], np.float32),
    np.array([0, 1, 1, 0], np.uint8),
    np.array([np.nan, 2.5, 1.5, np.nan], np.float32),
)


@pytest.fixture
def source(beir: Path, tmp_path: Path, small: Tokenizer) -> Collection:
    return build("beir", [beir], tmp_path / "source", small)


@pytest.mark.parametrize("links", [True, False])
def test_the_rest_is_linked(source: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("another file system")))
    split = source.splits()[0]
    made = derive(source, tmp_path / "out" / "mined", split, MINED, {"mined_by": "bm25"}, ["bm25"])
    assert list(made.corpus.texts()) == list(source.corpus.texts())
    assert list(made.queries.texts()) == list(source.queries.texts())
    groups = made.groups(split)
    query, candidates, labels = groups[0]
    assert (candidates.tolist(), labels.tolist()) == ([0, 1, 2], [1, 0, 0])
    assert groups.found_by is not None
    assert groups.found_scores is not None
    assert groups.found_by.tolist() == [0, 1, 1, 0]
    np.testing.assert_array_equal(groups.found_scores, MINED.found_scores)
    assert made.queries.ids[query] in source.qrels(split)
    assert made.manifest["mined"] == ["bm25"]
    assert made.sha256 != source.sha256
    stored, computed = Relevant.of_split(made, split), Relevant.of_groups(made, groups)
    assert [stored.of(query).tolist() for query in groups.queries] == [[0], [2]]
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(stored, name), getattr(computed, name), strict=True)
    text = "corpus/text.npy"
    assert (made.directory / text).samefile(source.directory / text) == links
    assert not list(verify(made.directory))
    damaged = made.directory / "splits" / split / "found_scores.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x01")
    assert [line.split(":")[0] for line in verify(made.directory)] == [str(damaged)]
    assert not list(verify(source.directory))


def test_scores_are_kept_in_the_manifest_and_left_out_with_other_candidates(source: Collection, tmp_path: Path) -> None:
    split = source.splits()[0]
    scores = np.array([3.5, np.nan, -1, 2], np.float32)
    scored = derive(source, tmp_path / "scored", split, MINED._replace(scores=scores), {}, [])
    assert not list(verify(scored.directory))
    np.testing.assert_array_equal(scored.groups(split).taught, scores)
    damaged = scored.directory / "splits" / split / "scores.npy"
    without = derive(scored, tmp_path / "without", split, MINED, {}, [])
    assert not list(verify(without.directory))
    assert without.groups(split).scores is None
    np.testing.assert_array_equal(without.groups(split).taught, MINED.labels)
    np.save(damaged, scores[:2])
    assert [line.split(":")[0] for line in verify(scored.directory)] == [str(damaged)]
    np.save(without.directory / "splits" / split / "found_by.npy", np.zeros(2, np.uint8))
    for made in (scored, without):
        with pytest.raises(InputError, match="its arrays are of different groups"):
            made.groups(split)


def test_a_mined_collection_is_replaced_and_nothing_else(source: Collection, tmp_path: Path) -> None:
    split = source.splits()[0]
    out = tmp_path / "out"
    derive(source, out, split, MINED, {}, ["bm25"])
    derive(source, out, split, MINED, {}, ["other"])
    assert json.loads((out / "manifest.json").read_text())["mined"] == ["other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beir", "out", "source"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    another = build("beir", [tmp_path / "beir"], tmp_path / "another", source.tokenizer)
    for folder in (mine, mine / "thesis.txt", another.directory):
        with pytest.raises(InputError, match="exists, and was not mined: name another folder"):
            derive(source, folder, split, MINED, {}, ["bm25"])
    with pytest.raises(InputError, match="is the collection itself"):
        derive(source, source.directory, split, MINED, {}, ["bm25"])
    assert (mine / "thesis.txt").read_text() == "years"
    assert Collection.open(another.directory).qrels(split) == source.qrels(split)


def full_device(file: Path, to: Path) -> None:
    to.symlink_to("/dev/full")
    raise OSError("no hard links")


def test_a_full_disk(source: Collection, tmp_path: Path, disk_full_after, monkeypatch: pytest.MonkeyPatch) -> None:
    split, out = source.splits()[0], tmp_path / "out"
    derive(source, out, split, MINED, {}, ["bm25"])
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full_device)
        with pytest.raises(InputError, match=f"^{out}: cannot write: No space left on device$"):
            derive(source, out, split, MINED, {}, ["other"])
    disk_full_after(4)
    with pytest.raises(InputError, match="out: cannot write"):
        derive(source, out, split, MINED, {}, ["other"])
    assert Collection.open(out).manifest["mined"] == ["bm25"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beir", "out", "source"]


def test_documents_end_with_the_added_tokens(source: Collection, tmp_path: Path) -> None:
    word = source.tokenizer.encode(["jumps"])[0]
    added = [np.tile(word, i % 3) for i in range(len(source.corpus))]
    made = expand(source, tmp_path / "expanded", iter(added), {"expanded_by": "a model"})
    for i, new in enumerate(added):
        np.testing.assert_array_equal(made.corpus.tokens(i), np.concatenate([source.corpus.tokens(i), new]))
        words = "".join(f" {source.tokenizer.texts[token]}" for token in new.tolist())
        assert made.corpus.text(i) == source.corpus.text(i) + words
        parts = source.corpus.parts(i)
        assert [len(part) for part in made.corpus.parts(i)] == [*map(len, parts[:-1]), len(parts[-1]) + len(new)]
    assert made.corpus.ids[0] == source.corpus.ids[0]
    assert list(made.queries.texts()) == list(source.queries.texts())
    assert made.qrels(source.splits()[0]) == source.qrels(source.splits()[0])
    more = sum(map(len, added))
    assert made.manifest["counts"]["corpus"]["tokens"] == source.manifest["counts"]["corpus"]["tokens"] + more
    assert not list(verify(made.directory))
