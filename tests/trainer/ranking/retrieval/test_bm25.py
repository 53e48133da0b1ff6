"""BM25 against its formula, and against published results on Cranfield."""

import json
import sys
from math import log
from pathlib import Path

import numpy as np
import pytest

from deepsiam.trainer.ranking.evaluation.metrics import measure
from deepsiam.trainer.ranking.retrieval.bm25 import K1, B, Bm25, import_bm25s
from tests.samples import DATA, needs
from tests.trainer.ranking.retrieval.fakes import positions


def formula(query: str, documents: list[str]) -> list[float]:
    """The scores of Lucene's BM25, computed as a plain sum over query words."""
    split = [document.split() for document in documents]
    mean = sum(map(len, split)) / len(split)
    scores = []
    for words in split:
        score = 0.0
        for term in query.split():
            frequency = sum(term in other for other in split)
            idf = log(1 + (len(split) - frequency + 0.5) / (frequency + 0.5))
            count = words.count(term)
            score += idf * count / (count + K1 * (1 - B + B * len(words) / mean))
        scores.append(score)
    return scores


def test_scores_and_order_are_the_formulas_for_every_document() -> None:
    documents = ["lift drag wing", "wing wing wing flow heat", "heat", "drag drag heat", "shock wave tube lift lift"]
    queries = ["wing", "heat drag", "unheard", "drag drag shock"]
    bm25 = Bm25.of_texts(queries, documents)
    assert bm25.shape == (4, 5)
    scores = bm25.scores(slice(1, 4))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [formula(query, documents) for query in queries[1:]], rtol=1e-6)
    for query in ("wing", "heat drag", "lift wing heat", "drag drag shock"):
        plain = formula(query, documents)
        expected = [i for i in sorted(range(len(documents)), key=lambda i: -plain[i]) if plain[i] > 0]
        assert positions(Bm25.of_texts([query], documents).rank(10)) == [expected]
    np.testing.assert_array_equal(Bm25.of_texts(queries, ["", "the"]).scores(slice(0, 4)), np.zeros((4, 2), np.float32))


def test_equal_scores_rank_in_the_order_given_and_k_limits() -> None:
    documents = ["other words", "lift and drag", "the lift or drag", "drag lift"]
    bm25 = Bm25.of_texts(["drag lift", "LIFT"], documents)
    ranked = bm25.rank(2)
    assert positions(ranked) == [[1, 2], [1, 2]]
    np.testing.assert_array_equal([row.scores for row in ranked], bm25.scores(slice(0, 2))[:, 1:3])
    # documents without a word of the query are not ranked
    assert positions(Bm25.of_texts(["unheard", "", "the of"], ["lift", "the of and"]).rank(10)) == [[], [], []]
    assert positions(Bm25.of_texts(["lift"], ["", "the"]).rank(10)) == [[]]


def test_it_says_where_no_query_shares_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    Bm25.of_texts(["lift", "unheard"], ["lift"])
    Bm25.of_texts([], ["lift"])
    assert not capsys.readouterr().err
    Bm25.of_texts(["unheard", "the"], ["lift"])
    Bm25.of_texts(["lift"], ["the"])
    assert capsys.readouterr().err.splitlines() == [
        "warning: BM25 finds nothing: none of 2 queries shares a word with a document",
        "warning: BM25 finds nothing: none of 1 queries shares a word with a document",
    ]


def test_words_of_every_script_find_their_document() -> None:
    documents = [
        "हिन्दी भाषा में खोज",
        "नदी और पहाड़",
        "我们在图书馆学习",
        "東京タワーへ行く",
        "ฉันรักแมวของฉัน",
        "도서관에서 책을",
        "vitamin K",
    ]
    queries = ["भाषा", "पहाड़", "图书馆", "タワー", "แมว", "도서관", "k"]
    assert [ranked[:1] for ranked in positions(Bm25.of_texts(queries, documents).rank(3))] == [[i] for i in range(7)]


@needs("cranfield")
def test_cranfield() -> None:
    """bm25s with the Snowball stemmer gives 0.516, 0.367 and 0.720 on these 150 queries; without it, slightly less."""
    folder = DATA / "cranfield"
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]
        for part in ("corpus", "queries")
    )
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "train.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        qrels.setdefault(query, {})[document] = int(grade)
    ranked = Bm25.of_texts([q["text"] for q in queries], [f"{d['title']} {d['text']}" for d in corpus]).rank(100)
    metrics = measure(
        qrels, {q["_id"]: [corpus[i]["_id"] for i in row] for q, row in zip(queries, positions(ranked), strict=True)}
    )
    assert len(qrels) == 150
    assert metrics.means["mrr@10"] == pytest.approx(0.487, abs=0.005)
    assert metrics.means["ndcg@10"] == pytest.approx(0.338, abs=0.005)
    assert metrics.means["recall@100"] == pytest.approx(0.701, abs=0.005)


def test_a_ranking_by_words_leaves_jax_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jax.py").write_text("raise SystemExit('JAX was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("bm25s", "jax")]:
        monkeypatch.delitem(sys.modules, name)
    assert import_bm25s().BM25
    assert "jax" not in sys.modules
