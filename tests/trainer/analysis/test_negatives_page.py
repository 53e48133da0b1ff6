"""The page of negatives: which queries and documents it shows, and what is told of them."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import mine
from deepsiam.trainer.analysis.negatives_page import SHOWN, negatives_page
from tests import toy


@pytest.fixture(scope="module")
def mined(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mined") / "c"
    mine.main([f"--collection={toy_collection}", "--split=train", f"--out={out}", "--system=bm25", "--depth=20"])
    return out


def test_queries_are_shown_with_their_documents_in_order(mined: Path) -> None:
    collection = Collection.open(mined)
    html, groups = negatives_page(collection, "train", 7), collection.groups("train")
    assert html == negatives_page(collection, "train", 7)
    assert negatives_page(collection, "train", 8) != html
    number_of = {collection.queries.text(int(query)): i for i, query in enumerate(groups.queries.tolist())}
    shown = re.findall(r"<section><p><b>(.*?)</b></p>(.*?)</section>", html, re.DOTALL)
    assert len(shown) == 7
    assert groups.found_scores is not None
    for query, columns in shown:
        i = number_of[unescape(query)]
        _, documents, labels = groups[i]
        scores = groups.found_scores[int(groups.candidates.ends[i]) - len(documents) :]
        rows = [row for row in zip(documents.tolist(), labels.tolist(), scores.tolist(), strict=False) if row[1] <= 0]
        items = [unescape(about) for about in re.findall(r'<li><span class="note">(.*?)</span>', columns)]
        assert items == [f"{collection.corpus.ids[d]} · bm25 {score:.4g}" for d, _, score in rows[:SHOWN]]
        relevant = [unescape(about) for about in re.findall(r'<li class="relevant"><span class="note">(.*?)<', columns)]
        assert relevant == [collection.corpus.ids[d] for d in documents[labels > 0].tolist()]
        assert f"{len(rows)} negatives" in columns


def test_texts_are_escaped_and_a_teachers_scores_shown(shards: Path, tmp_path: Path) -> None:
    corpus = {"d0": "<script>alert(1)</script> abc", "d1": "abc & def"}
    folder = toy.write_beir(tmp_path / "c", corpus, {"q0": "<b> abc"}, train="q0\td0\t1\nq0\td1\t0\n")
    collection = build("beir", [folder], folder, tokenizers.load(shards / "tokenizer.json"))
    np.save(folder / "splits" / "train" / "scores.npy", np.array([0.5, 2.25], np.float32))
    html = negatives_page(collection, "train", 20)
    assert "<script>" not in html
    assert "&lt;b&gt; abc" in html
    assert "<mark>abc</mark> &amp; def" in html
    assert "d1 · given · teacher 2.25" in html


def test_given_negatives_are_told_from_mined_ones(shards: Path, tmp_path: Path) -> None:
    corpus = {f"d{i}": f"abc {word}" for i, word in enumerate(("def", "the ghi", "jkl", "mno"))}
    folder = toy.write_beir(tmp_path / "c", corpus, {"q0": "the abc"}, train="q0\td0\t1\nq0\td1\t0\n")
    build("beir", [folder], folder, tokenizers.load(shards / "tokenizer.json"))
    out = tmp_path / "mined"
    mine.main([f"--collection={folder}", "--split=train", f"--out={out}", "--system=bm25"])
    html = negatives_page(Collection.open(out), "train", 1)
    assert "1 negatives given, 2 mined." in html
    assert re.findall(r'<span class="note">(d\d.*?)</span>', html)[:2] == ["d0", "d1 · given"]
    assert html.count("· bm25 ") == 2
    assert "<mark>abc</mark> the ghi" in html  # BM25 reads no stop words


def test_a_split_without_negatives_is_refused(toy_collection: Path, toy_classes: Path) -> None:
    with pytest.raises(InputError, match="no query of split train has a relevant document and negatives: mine some"):
        negatives_page(Collection.open(toy_collection), "train", 20)
    with pytest.raises(InputError, match="its labels are classes"):
        negatives_page(Collection.open(toy_classes), "train", 20)
