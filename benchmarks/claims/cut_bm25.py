"""BM25 on what the encoders read: queries and documents truncated to their first tokens.

An encoder of short inputs is usually compared with a BM25 that reads the whole text; this one shows how much of BM25's
lead comes from text that the encoder never sees.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metrics
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.bm25 import Bm25


def cut(texts: Iterable[str], tokenizer: Tokenizer, max_tokens: int) -> Iterator[str]:
    """Truncate each text after the last whole word that an input of `max_tokens` holds, [CLS] and [SEP] included.

    Correct for WordPiece, where the tokens of a text are the tokens of its words.
    """
    for words, tokens in tokenizer.encode_batches((words, words) for words in map(str.split, texts)):
        ends = np.cumsum([len(ids) for ids in tokens])
        yield " ".join(words[: int((ends <= max_tokens - 2).sum())])


def evaluate_cut_bm25(
    collection: Collection, split: str, *, max_query_tokens: int, max_document_tokens: int
) -> Metrics:
    """Rank a split with BM25 as `evaluate_split` does, by texts cut to what an encoder with these limits reads."""
    task, tokenizer = Task.of(collection, split), collection.tokenizer
    cut_queries = cut(map(collection.queries.text, task.queries), tokenizer, max_query_tokens)
    cut_documents = cut(map(collection.corpus.text, task.pool), tokenizer, max_document_tokens)
    return task.measure(task.rank(Bm25.of_texts(list(cut_queries), list(cut_documents)), DEPTH))
