"""An export from Python loads again, with the run's vectors."""

from pathlib import Path

import numpy as np
import pytest

import deepsiam
from tests.trainer.runs import write_run


def test_an_export_has_the_vectors_of_its_run(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese", similarity="cosine")
    out = deepsiam.export(str(run), tmp_path / "out")
    assert out == tmp_path / "out"
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-00000007 to {out}\n"
    ours, theirs = deepsiam.load(run), deepsiam.load(out)
    for side in ("encode_query", "encode_document"):
        vectors = [getattr(model, side)(["abc bcd", "cde"]) for model in (ours, theirs)]
        np.testing.assert_allclose(*vectors, atol=1e-6)
