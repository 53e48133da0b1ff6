"""The claims benchmark fine-tunes, chooses its settings and ranks on different queries."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.claims import tunings as claims_tunings
from benchmarks.claims.material import CLASSIC, FOLDS
from benchmarks.claims.tunings import COLLECTIONS, TEXTS, bm25, by_table, mean, rank, tunings


def test_no_split_is_trained_on_chosen_with_and_ranked() -> None:
    docstrings, *folds = tunings(None, None)  # type: ignore[arg-type]
    assert (docstrings.settings.get("data.split", "train"), docstrings.dev) == ("train", ("dev",))
    assert docstrings.ranked == {"docstrings": "test"}
    assert [tuning.settings["data.split"] for tuning in folds] == list(reversed(FOLDS))
    for tuning in folds:
        trained = tuning.settings["data.split"]
        assert set(tuning.dev) == {f"{name}-{trained}-dev" for name in CLASSIC}
        (ranked,) = set(FOLDS) - {trained}
        assert tuning.ranked == {name: f"{name}-{ranked}" for name in CLASSIC}


def test_both_folds_are_ranked_and_joined() -> None:
    found = tunings(None, None)  # type: ignore[arg-type]
    splits = [split for tuning in found for split in tuning.ranked.values()]
    values = {split: [float(number)] * (number + 1) for number, split in enumerate(splits)}
    joined = by_table((tuning, values) for tuning in found)
    assert tuple(joined) == COLLECTIONS
    assert sum(map(len, joined.values())) == sum(map(len, values.values()))
    assert joined["vaswani"] == [*values["vaswani-first"], *values["vaswani-second"]]


def test_a_run_ranks_each_split(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(ranker: str, split: str) -> SimpleNamespace:
        assert ranker == "model of run of collection"
        return SimpleNamespace(values={"mrr@10": np.full(2, len(split))})

    monkeypatch.setattr(claims_tunings, "load_trained", lambda run: f"model of {run}")
    monkeypatch.setattr(claims_tunings, "ranker_of", lambda model, collection: f"{model} of {collection}")
    monkeypatch.setattr(claims_tunings, "evaluate_split", evaluate)
    values = rank(Path("run"), "collection", ["a", "bbb"])  # type: ignore[arg-type]
    assert values == {"a": [1.0, 1.0], "bbb": [3.0, 3.0]}
    assert mean({"a": [1.0], "b": [2.0, 6.0]}) == 3.0  # every query counts the same


def test_bm25_reads_the_whole_text_and_the_text_cut_to_the_recipes_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def whole(ranker: object, split: str) -> SimpleNamespace:
        return SimpleNamespace(values={"mrr@10": np.array([0.5])})

    def cut(collection: object, split: str, **given: int) -> SimpleNamespace:
        limits.append(given)
        return SimpleNamespace(values={"mrr@10": np.array([0.25])})

    monkeypatch.setattr(claims_tunings, "evaluate_split", whole)
    monkeypatch.setattr(claims_tunings, "Bm25Ranker", lambda collection: collection)
    monkeypatch.setattr(claims_tunings, "evaluate_cut_bm25", cut)
    values = bm25(tunings(None, None))  # type: ignore[arg-type]
    folds = {"docstrings": 1, "cranfield": 2, "vaswani": 2}
    for text, value in zip(TEXTS, (0.5, 0.25), strict=True):
        assert values[text] == {name: [value] * number for name, number in folds.items()}
    assert limits == [{"max_query_tokens": 32, "max_document_tokens": 64}] * 5
