"""Exports from Python and by the command: what is printed, and the run's vectors."""

from pathlib import Path

import numpy as np
import pytest

import deepsiam
from deepsiam.trainer.export import main
from tests.trainer.runs import STEP, write_run


def test_an_export_has_the_vectors_of_its_run(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese", similarity="cosine")
    out = deepsiam.export(str(run), tmp_path / "out")
    assert out == tmp_path / "out"
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-{STEP:08d} to {out}\n"
    ours, theirs = deepsiam.load(run), deepsiam.load(out)
    for side in ("encode_query", "encode_document"):
        vectors = [getattr(model, side)(["abc bcd", "cde"]) for model in (ours, theirs)]
        np.testing.assert_allclose(*vectors, atol=1e-6)


def test_the_command_says_what_it_makes(
    tmp_path: Path, toy_collection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, out = toy_collection / "tokenizer.json", tmp_path / "out"
    run = write_run(tmp_path / "seed", tokenizer, name="seed", max_tokens=32)
    main([str(run), str(out), "--with-decoder"])
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-{STEP:08d} to {out}\n"
    assert (out / "decoder.safetensors").is_file()
    main([str(write_run(tmp_path / "poly", tokenizer, name="poly_encoder", m=4)), str(tmp_path / "poly-out")])
    assert "-out as two encoders: no library loads a Poly-encoder, and README.md has" in capsys.readouterr().out
