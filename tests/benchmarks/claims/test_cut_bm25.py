"""BM25 on truncated text: it reads the same text as an encoder."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims.cut_bm25 import cut, evaluate_cut_bm25
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker


def test_a_text_keeps_the_whole_words_among_its_first_tokens(toy_collection: Path) -> None:
    collection = Collection.open(toy_collection)
    texts = ["An unheard-of word:  supercalifragilistic, again\nand again. ", *collection.corpus.texts(), ""]
    for max_tokens in (3, 10, 16):
        for text, kept in zip(texts, cut(texts, collection.tokenizer, max_tokens), strict=True):
            words = text.split()
            n = len(kept.split())
            assert kept.split() == words[:n]
            (read, with_next), (whole,) = (
                collection.tokenizer.encode(those) for those in ([kept, " ".join(words[: n + 1])], [text])
            )
            np.testing.assert_array_equal(read, whole[: len(read)])
            assert len(read) <= max_tokens - 2
            assert n == len(words) or len(with_next) > max_tokens - 2


def test_texts_within_the_limits_rank_as_whole_ones(toy_collection: Path) -> None:
    collection = Collection.open(toy_collection)
    whole = evaluate_split(Bm25Ranker(collection), "test")
    within = evaluate_cut_bm25(collection, "test", max_query_tokens=500, max_document_tokens=500)
    np.testing.assert_array_equal(within.values["mrr@10"], whole.values["mrr@10"])
    # a query is the first sentence of its document: truncated texts still share words, but fewer
    cut_texts = evaluate_cut_bm25(collection, "test", max_query_tokens=6, max_document_tokens=6)
    assert 0 < cut_texts.means["recall@100"] < whole.means["recall@100"] + 1e-9
    assert not np.array_equal(cut_texts.values["mrr@10"], whole.values["mrr@10"])


@pytest.mark.parametrize("text", ["don't stop", "naïve café", "a\u00a0b\tc"])
def test_words_have_the_tokens_of_their_text(text: str, tmp_path: Path) -> None:
    trained = tokenizer.train([text, "stop here"] * 3, 64, tmp_path / "tokenizer.json")
    by_word = np.concatenate(trained.encode(text.split()))
    np.testing.assert_array_equal(by_word, trained.encode([text])[0])
