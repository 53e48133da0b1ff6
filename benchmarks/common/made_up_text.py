"""Made-up text: words by Zipf's law, sentences of log-normal lengths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary

MEGABYTE = 1_000_000


def draw_words(rng: np.random.Generator, count: int, different: int) -> np.ndarray:
    """Draw `count` words out of `different` ones by Zipf's law; return their numbers, from 0, int64 [count]."""
    return (rng.zipf(1.2, count) - 1) % different  # modulo: Zipf's law is unbounded, a vocabulary is not


def make_document(
    rng: np.random.Generator, vocabulary: Vocabulary, sentences: range, log_tokens: float
) -> TokenDocument:
    """Make a document of a number of sentences in `sentences`; `log_tokens` is the mean of ln(tokens of a sentence)."""
    lengths = np.maximum(1, rng.lognormal(log_tokens, 0.6, rng.integers(sentences.start, sentences.stop))).astype(int)
    first = len(vocabulary.special)
    ids = first + draw_words(rng, lengths.sum(), vocabulary.vocab_size - first)
    return TokenDocument(np.split(ids, np.cumsum(lengths)[:-1]))


def json_lines(different: int) -> Iterator[str]:
    """Yield documents of `different` made-up words as JSON lines, forever, about 800 bytes each."""
    rng = keyed_rng("benchmark text")
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(different)]
    while True:
        sentences = [draw_words(rng, rng.integers(5, 20), different) for _ in range(rng.integers(5, 15))]
        text = " ".join(" ".join(words[i] for i in sentence).capitalize() + "." for sentence in sentences)
        yield json.dumps({"text": text}) + "\n"


def up_to(megabytes: float, texts: Iterable[str]) -> Iterator[str]:
    """Yield the first texts, up to `megabytes`."""
    size = 0
    for text in texts:
        size += len(text.encode())
        yield text
        if size >= megabytes * MEGABYTE:
            return
