"""The command trainer.export."""

from pathlib import Path

import pytest

from deepsiam.trainer.export import main
from tests.trainer.runs import STEP, write_run


def test_the_newest_checkpoint_is_exported_and_named(
    tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", shards / "tokenizer.json", name="seed", max_tokens=32)
    main([str(run), str(tmp_path / "out"), "--with-decoder"])
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-{STEP:08d} to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "decoder.safetensors").is_file()


def test_a_poly_encoder_says_what_it_becomes(
    tmp_path: Path, toy_collection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="poly_encoder", m=4)
    main([str(run), str(tmp_path / "out")])
    assert "/out as two encoders: no library loads a Poly-encoder, and README.md has" in capsys.readouterr().out
