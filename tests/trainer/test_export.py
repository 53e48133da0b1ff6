"""The command trainer.export."""

from pathlib import Path

import pytest

from tests.trainer.runs import STEP, write_run
from trainer.export import main


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="seed", max_tokens=32)


def test_the_newest_checkpoint_is_exported_and_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(run), str(tmp_path / "out"), "--with-decoder"])
    assert capsys.readouterr().out == f"exported {run}/checkpoints/step-{STEP:08d} to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "decoder.safetensors").is_file()


def test_bad_input_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").touch()
    for arguments, message in (
        ([run, tmp_path], "not an earlier export"),
        ([tmp_path / "none", run], "train it first"),
        ([run, tmp_path / "out", "--format", "onnx"], "fine-tune it first"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
