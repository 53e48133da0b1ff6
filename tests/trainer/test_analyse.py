"""The figures and the case study, drawn from made runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from models.seed import Seed
from tests.trainer.runs import write_run
from trainer.analyse import cosines, main
from trainer.trained import load

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return run


@pytest.fixture
def seed_run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "seed", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=1)


def test_curves_of_several_runs_are_one_figure(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, end in (("a", 2.0), ("b", 3.0)):
        with SummaryWriter(str(tmp_path / name / "tensorboard")) as writer:
            for step in range(1, 101):
                writer.add_scalar("loss/decoder", end, step)
    out = tmp_path / "figure.png"
    runs = [f"SEED={tmp_path / 'a'}", f"k = 2={tmp_path / 'b'}"]
    main(["curves", "--tag", "loss/decoder", "--out", str(out), *runs])
    assert capsys.readouterr().out.splitlines() == [str(out), "SEED: 2.0000 at step 100", "k = 2: 3.0000 at step 100"]
    assert out.read_bytes().startswith(b"\x89PNG")
    said = refused("curves", "--tag", "loss/mlm", "--out", out, *runs)
    assert said.endswith("has not logged loss/mlm; it has loss/decoder")


def test_cosines_are_those_of_a_plain_loop(seed_run: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load(seed_run)
    model = trained.model
    assert isinstance(model, Seed)
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    decode = model.decoder.forward

    def note(cls: torch.Tensor, ids: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        states = decode(cls, ids, *rest)
        seen.append((cls, ids, states))
        return states

    monkeypatch.setattr(model.decoder, "forward", note)
    means = cosines(trained, shards)
    by_position: dict[int, list[float]] = {}
    for cls, ids, states in seen:
        for row in range(len(ids)):
            for position in range(1, int((ids[row] != trained.tokenizer.pad).sum()) - 1):  # the last has no next token
                a, b = states[row, position].double(), cls[row].double()
                by_position.setdefault(position, []).append(float(a @ b / a.norm() / b.norm()))
    assert list(by_position) == list(range(1, max(by_position) + 1))
    np.testing.assert_allclose(means, [np.mean(v) for v in by_position.values()], atol=1e-6)


def test_the_cosine_figure(seed_run: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cosine", "--shards", str(shards), "--out", str(tmp_path / "f.png"), f"one layer={seed_run}"])
    path, line = capsys.readouterr().out.splitlines()
    assert path == str(tmp_path / "f.png")
    assert line.startswith("one layer: ")
    assert (tmp_path / "f.png").exists()


def test_what_has_no_cls_to_look_at_is_refused(tmp_path: Path, shards: Path, refused: Refused) -> None:
    tokenizer = shards / "tokenizer.json"
    blind = write_run(tmp_path / "blind", tokenizer, name="seed", max_tokens=32, cls=False)
    plain = write_run(tmp_path / "plain", tokenizer, name="mlm", max_tokens=32)
    for run in (blind, plain):
        said = refused("cosine", "--shards", shards, "--out", tmp_path / "f.png", f"x={run}")
        assert "no SEED run whose decoder reads [CLS]" in said
    assert "no Cross-Thought run" in refused("attention", plain, "--shards", shards)


def test_the_case_study_names_the_sequences_that_were_drawn_on(
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
    assert "--sequence: 99 is none of the" in refused("attention", run, "--shards", shards, "--sequence", 99)


def test_a_run_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["curves", "--tag", "x", "--out", "f.png", "run"])
    assert "'run' is not NAME=RUN" in capsys.readouterr().err
