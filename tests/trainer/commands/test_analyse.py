"""The commands of trainer.analyse: their figures, printed lines and refusals."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.trainer.analyse import main
from tests.trainer.commands.test_report import log
from tests.trainer.runs import write_run

Refused = Callable[..., str]


def test_curves_of_several_runs_are_one_figure(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    log(tmp_path / "a", {"decoder": [2, 2]})
    log(tmp_path / "b", {"decoder": [3]})
    out = tmp_path / "figure.png"
    runs = [f"SEED={tmp_path / 'a'}", f"k = 2={tmp_path / 'b'}"]
    main(["curves", "--tag", "loss/decoder", "--out", str(out), *runs])
    assert capsys.readouterr().out.splitlines() == [str(out), "SEED: 2.0000 at step 10", "k = 2: 3.0000 at step 0"]
    assert out.read_bytes().startswith(b"\x89PNG")
    line = refused(main, "curves", "--tag", "loss/mlm", "--out", out, *runs)
    assert line.endswith("has not logged loss/mlm; it has loss/decoder, lr")


def test_the_cosine_figure(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed_run = write_run(tmp_path / "seed", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=1)
    main(["cosine", "--shards", str(shards), "--out", str(tmp_path / "f.png"), f"one layer={seed_run}"])
    path, line = capsys.readouterr().out.splitlines()
    assert path == str(tmp_path / "f.png")
    assert line.startswith("one layer: ")
    assert (tmp_path / "f.png").exists()


def test_the_case_study_lists_sequences_by_their_share_of_attention(
    tmp_path: Path, shards: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    method = {"name": "cross_thought", "sequences": 8, "sequence_tokens": 8, "special_tokens": 2}
    run = write_run(tmp_path / "run", shards / "tokenizer.json", **method)
    main(["attention", str(run), "--shards", str(shards), "--sequence", "3"])
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("sequence 3 of ")
    shares = [float(line.split()[0]) for line in others]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1.001
    main(["attention", str(run), "--shards", str(shards)])
    assert capsys.readouterr().out.startswith("sequence ")
    assert "--sequence: 99 is not one of the" in refused(main, "attention", run, "--shards", shards, "--sequence", 99)
