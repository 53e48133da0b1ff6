"""The report's curves, plots and page, and its six printed lines."""

import json
import struct
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from data_prep.common.errors import InputError
from trainer.analysis.plots import read_scalars
from trainer.report import draw_results, find_runs, losses_of, main, read_results

METRICS = {"mrr@10": 0.25, "ndcg@10": 0.3, "recall@100": 0.5}
RESULTS = {
    "bm25": METRICS,
    "from_random": METRICS,
    "from_seed": METRICS,
    "p_value": 0.5,
    "queries": 9,
    "corpus": 99,
    "collection": "no longer there",
    "split": "test",
    "checkpoints": {},
    "max_tokens": {},
}


def log(run: Path, losses: dict[str, list[float]]) -> None:
    with SummaryWriter(str(run / "tensorboard")) as writer:
        for term, values in losses.items():
            for i, value in enumerate(values):
                writer.add_scalar(f"loss/{term}", value, 10 * i)
                writer.add_scalar("lr", 1e-3, 10 * i)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log(tmp_path / "seed", {"mlm": [7, 5, 4], "decoder": [8, 6, 5]})
    log(tmp_path / "labels" / "100", {"softmax": [4]})
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    return tmp_path


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def test_six_lines_and_the_plots(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "export").mkdir()
    main([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].split() == ["page", str(folder / "report.html")]
    assert str(folder / "results.json") in lines[1]
    assert f"tensorboard --logdir {folder}" in lines[2]
    assert "labels-100.png, seed.png, results.png" in lines[3]
    assert str(folder / "export") in lines[4]
    assert "make" in lines[5]
    plots = folder / "plots"
    assert {path.name for path in plots.iterdir()} == {"seed.png", "labels-100.png", "results.png"}
    assert size(plots / "seed.png")[0] == 2 * size(plots / "labels-100.png")[0]  # a panel for each loss term


def test_what_is_missing_is_reported_with_its_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results.json").unlink()
    log(folder / "just started", {})
    main([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "python -m trainer.evaluate" in lines[1]
    assert "python -m trainer.export" in lines[4]
    assert not (folder / "plots" / "results.png").exists()


def test_only_losses_are_read_by_their_terms(tmp_path: Path) -> None:
    log(tmp_path / "run", {"mlm": [7, 6]})
    losses = losses_of(read_scalars(tmp_path / "run"))
    assert losses.keys() == {"mlm"}
    steps, values = losses["mlm"]
    assert (steps.tolist(), values.tolist()) == ([0, 10], [7, 6])


def test_a_folder_that_is_itself_a_run(tmp_path: Path) -> None:
    log(tmp_path / "alone", {"mlm": [1]})
    assert find_runs(tmp_path / "alone") == {"alone": tmp_path / "alone"}


def test_every_system_has_a_bar_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr("trainer.report.save", lambda figure, path: drawn.append(figure) or path)
    systems = {f"model {i}": dict.fromkeys(METRICS, i / 10) for i in range(4)}  # one of them all zeros
    draw_results({**systems, "p_value": None, "queries": 1, "corpus": 2}, tmp_path)
    for panel in drawn[0].axes:
        assert [bar.get_width() for bar in panel.patches] == [0, 0.1, 0.2, 0.3]
        assert [text.get_text() for text in panel.texts] == ["0.000", "0.100", "0.200", "0.300"]
    assert [label.get_text() for label in drawn[0].axes[0].get_yticklabels()] == list(systems)


def test_the_fused_row_has_the_names_of_its_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr("trainer.report.save", lambda figure, path: drawn.append(figure) or path)
    draw_results({**RESULTS, "fused": METRICS, "fusion": {"systems": ["bm25", "from_seed"]}}, tmp_path)
    labels = [label.get_text() for label in drawn[0].axes[0].get_yticklabels()]
    assert labels == ["BM25", "from_random", "from_seed", "bm25+from_seed"]
    assert "; from_seed against from_random on MRR@10: p = 0.5" in drawn[0].get_suptitle()


@pytest.mark.parametrize("fusion", [None, {}, {"systems": ["a"]}, {"systems": [1, 2]}])
def test_a_fused_row_of_unknown_systems_is_refused(tmp_path: Path, fusion: object) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**RESULTS, "fused": METRICS, "fusion": fusion}))
    with pytest.raises(InputError, match="fusion.systems does not name two systems: run trainer.evaluate again"):
        read_results(path)


@pytest.mark.parametrize("content", ["not json", "[]", "{}", '{"queries": 1, "corpus": 2, "m": {"mrr@10": 1}}'])
def test_damaged_results_are_refused(folder: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results.json").write_text(content)
    with pytest.raises(SystemExit) as exit_:
        main([str(folder)])
    assert exit_.value.code == 2
    assert "not results of trainer.evaluate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"from_seed": {**METRICS, "mrr@10": None}}, "from_seed.mrr@10 is None, not a number"),
        ({"from_seed": {**METRICS, "ndcg@10": float("nan")}}, "from_seed.ndcg@10 is nan, not a number"),
        ({"queries": "9"}, "queries is '9', not a number"),
    ],
)
def test_results_that_are_not_numbers_are_named(
    folder: Path, change: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "results.json").write_text(json.dumps({**RESULTS, **change}))
    with pytest.raises(SystemExit) as exit_:
        main([str(folder)])
    assert exit_.value.code == 2
    assert words in capsys.readouterr().err


def test_a_model_that_ranks_again_has_the_name_of_what_it_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr("trainer.report.save", lambda figure, path: drawn.append(figure) or path)
    draw_results({**RESULTS, "rerank": {"from_seed": {"system": "bm25", "documents": 9}}}, tmp_path)
    labels = [label.get_text() for label in drawn[0].axes[0].get_yticklabels()]
    assert labels == ["BM25", "from_random", "from_seed on the first 9 of BM25"]


@pytest.mark.parametrize("rerank", [None, [], {"from_seed": "bm25"}, {"from_seed": {"system": "bm25"}}])
def test_an_unknown_ranking_that_was_ranked_again_is_refused(tmp_path: Path, rerank: object) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**RESULTS, "rerank": rerank}))
    with pytest.raises(InputError, match="rerank does not name what was re-ranked: run trainer.evaluate again"):
        read_results(path)
