"""Collections of made-up text whose groups are candidate lists, or pairs with a class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from tests import toy

LISTS, CANDIDATES = 40, 6
CLASSES = ("entailment", "neutral", "contradiction")


def candidate_lists(folder: Path, tokenizer_json: Path, *, sizes: int = CANDIDATES) -> Collection:
    """A question is a part of its relevant passage, which comes first; two in eight have a second relevant passage.

    Question 0 has a second list with other passages; the last two lists have no relevant passage.
    """
    texts = [" ".join(sentences) for sentences in toy.documents(LISTS * sizes, seed=3)]
    lists: list[dict[str, Any]] = []
    for i in range(LISTS):
        own = texts[i * sizes : (i + 1) * sizes]
        labels = [int(i < LISTS - 2), int(i % 8 < 2 and i < LISTS - 2), *[0] * (sizes - 2)]
        question = texts[0 if i == 1 else i * sizes].split()[:5]
        passages = [{"text": text, "label": label} for text, label in zip(own, labels, strict=True)]
        lists.append({"query": " ".join(question), "passages": passages})
    folder.mkdir()
    (folder / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in lists))
    return build("answer_selection", [folder / "test.jsonl"], folder / "built", tokenizers.load(tokenizer_json))


def labelled_pairs(folder: Path, tokenizer_json: Path, number: int = 60) -> Collection:
    """Pairs in MNLI's format; every second one is neutral."""
    texts = [" ".join(sentences) for sentences in toy.documents(2 * number, seed=4)]
    labels = np.random.default_rng(0).integers(0, 3, number)
    labels[::2] = 1
    rows = [
        {"sentence1": texts[2 * i], "sentence2": texts[2 * i + 1], "gold_label": CLASSES[label]}
        for i, label in enumerate(labels.tolist())
    ]
    folder.mkdir()
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build("nli", [folder / "test.jsonl"], folder / "built", tokenizers.load(tokenizer_json))
