"""The benchmark of matching models, tiny: all rivals take the same steps, and every promised number is measured."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.common import side_by_side
from benchmarks.common.made_up_pairs import PairSizes
from benchmarks.matching import __main__ as matching
from benchmarks.matching import scoring
from benchmarks.matching.scoring import ScoringSizes, query_of

SIZES = PairSizes(layers=1, hidden=32, words=300, batch=4, micro=4, median=8, longest=24, steps=2, dropout=0.0)
SCORING = ScoringSizes(layers=1, hidden=32, tokens=16, codes=(2, 4), candidates=(3, 50))


def test_every_model_scores_every_number_of_candidates_by_its_own_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "MOST_ROUNDS", 3)
    monkeypatch.setattr(scoring, "SHORTEST", 0.0)
    results = matching.scoring(SCORING, 3600.0)
    assert results["rounds"] == 3
    assert len(results["seconds"]) == 2 * 2 * 3  # numbers of candidates, with and without encoding, models
    assert len(results["ratios"]) == 2 * 2 * 2
    assert all(numbers["min"] > 0 for numbers in (*results["seconds"].values(), *results["ratios"].values()))
    assert all(" candidates, " in line for line in matching.lines_of("scoring", results))
    query = query_of(SCORING)
    for name, model in scoring.models_of(SCORING).items():
        vectors = scoring.encode(model, query).vectors
        assert vectors.shape == (1, {"bi": 1, "poly 2": 2, "poly 4": 4}[name], 32)
        candidates = torch.stack([-vectors[0].sum(0), 3 * vectors[0].sum(0)])[:, None]
        assert scoring.best(model, query, scoring.Vectors(candidates, torch.ones(2, 1) > 0)) == 1


@pytest.mark.slow  # processes of both libraries
def test_all_rivals_train_alike_and_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the packages of the extra `dev`")
    monkeypatch.setattr(side_by_side, "MOST_ROUNDS", 3)
    monkeypatch.setattr(matching, "memory_of", lambda make, sizes: sizes.batch)  # a process less for each
    changes = {"training": SIZES.__dict__, "cached": {**SIZES.__dict__, "batch": 8, "micro": 4}}
    out = tmp_path / "out.json"
    options = ["--parts", "training", "cached", "--minutes", "60", "--sizes", json.dumps(changes), "--out", str(out)]
    matching.main(options)
    results = json.loads(out.read_text())
    assert (results["sizes"], results["skipped"]) == (changes, {})
    assert "sentence-transformers" in results["machine"]["versions"]
    for part, names in {"training": {matching.LOOP, matching.TOKENISED}, "cached": {matching.LOOP}}.items():
        measured = results["parts"][part]
        assert measured["rounds"] == 3
        assert names | {matching.OURS} <= measured["losses"].keys()
        ours = measured["losses"][matching.OURS]
        assert ours[0] != ours[1]
        rel = 1e-4 if measured["precision"] == "float32" else 0.03  # this library's losses are fp32 also in bf16 runs
        assert all(losses == pytest.approx(ours, rel=rel) for losses in measured["losses"].values())
        assert all(size > 0 for size in measured["peak_memory_bytes"].values())
        assert all(measured["ratios"][f"deepsiam / {name}"]["min"] > 0 for name in names)
    memory = results["parts"]["cached"]["peak_memory_bytes"]
    assert [memory[f"{name}, a batch of 4"] for name in (matching.OURS, matching.LOOP)] == [4, 4]
    trainer = results["parts"]["training"]
    assert (matching.TRAINER in trainer["losses"]) != (matching.TRAINER in trainer["left_out"])
