"""The report's curves, plots and page, and its printed lines."""

import json
import struct
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from deepsiam.trainer.analysis.plots import read_scalars
from deepsiam.trainer.analysis.report import draw_results, find_runs, losses_of
from deepsiam.trainer.ranking.evaluation.metrics import LIST_HEADINGS
from deepsiam.trainer.ranking.evaluation.results_file import About, Results, SystemResult, SystemStage, write_results
from deepsiam.trainer.ranking.evaluation.significance import SystemPair
from deepsiam.trainer.report import main

METRICS = {"mrr@10": 0.25, "ndcg@10": 0.3, "recall@100": 0.5}
ABOUT = About(collection="no longer there", split="test", queries=9, corpus=99)


def results_of(systems: dict[str, dict[str, float]]) -> Results:
    """Results of models, and of BM25 where it has this name."""
    measured = {}
    for name, metrics in systems.items():
        stage = SystemStage(stage=name, checkpoint=None if name == "bm25" else "run/step")
        measured[name] = SystemResult(expression=name, metrics=metrics, stages=[stage])
    same = {"metric": "mrr@10", "difference": 0, "interval": [0, 0], "p_value": 0.5, "p_value_holm": 1}
    pairs = [SystemPair.model_validate({"systems": [*pair], **same}) for pair in combinations(systems, 2)]
    return Results(version=1, systems=measured, about=ABOUT, pairs=pairs)


RESULTS = results_of(dict.fromkeys(("bm25", "from_random", "from_seed"), METRICS))


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
    write_results(tmp_path / "results.json", RESULTS)
    return tmp_path


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def test_five_lines_and_the_plots(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "export").mkdir()
    main([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["page", str(folder / "report.html")]
    assert str(folder / "results.json") in lines[1]
    assert f"tensorboard --logdir {folder}" in lines[2]
    assert "labels-100.png, seed.png, results.png" in lines[3]
    assert str(folder / "export") in lines[4]
    plots = folder / "plots"
    assert {path.name for path in plots.iterdir()} == {"seed.png", "labels-100.png", "results.png"}
    assert losses_of(read_scalars(folder / "seed")).keys() == {"mlm", "decoder"}
    assert size(plots / "seed.png")[0] == 2 * size(plots / "labels-100.png")[0]  # a panel for each loss term


def test_what_is_missing_is_reported_with_its_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results.json").unlink()
    log(folder / "just started", {})
    main([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "python -m trainer.evaluate" in lines[1]
    assert "python -m trainer.export" in lines[4]
    assert not (folder / "plots" / "results.png").exists()


def test_runs_and_results_whose_plots_would_have_the_same_name_are_all_shown(tmp_path: Path) -> None:
    for run in ("a-b", "a/b", "results"):
        log(tmp_path / run, {"mlm": [1]})
    write_results(tmp_path / "results.json", RESULTS)
    names = {"a-b-2": "a/b", "a-b": "a-b", "results-2": "results"}
    assert find_runs(tmp_path) == {name: tmp_path / run for name, run in names.items()}
    main([str(tmp_path)])
    plots = {path.name for path in (tmp_path / "plots").iterdir()}
    assert plots == {"a-b.png", "a-b-2.png", "results-2.png", "results.png"}
    of_results, of_run = (size(tmp_path / "plots" / f"{name}.png") for name in ("results", "results-2"))
    assert of_results[0] > 2 * of_run[0]  # three panels, not one
    log(tmp_path / "same", {"mlm": [1]})
    log(tmp_path / "same" / "same", {"mlm": [1]})
    assert find_runs(tmp_path / "same") == {"same": tmp_path / "same", "same-2": tmp_path / "same" / "same"}


def test_every_system_has_a_bar_with_its_number_under_the_first_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr("deepsiam.trainer.analysis.report.save", lambda figure, path: drawn.append(figure) or path)
    systems = {f"model {i}": dict.fromkeys(METRICS, i / 10) for i in range(4)}  # one of them all zeros
    for results, labels in ((results_of(systems), [*systems]), (RESULTS, ["BM25", "from_random", "from_seed"])):
        draw_results(results, tmp_path)
        assert [label.get_text() for label in drawn[-1].axes[0].get_yticklabels()] == labels
    for panel in drawn[0].axes:
        assert [bar.get_width() for bar in panel.patches] == [0, 0.1, 0.2, 0.3]
        assert [text.get_text() for text in panel.texts] == ["0.000", "0.100", "0.200", "0.300"]
    title = "9 queries over 99 documents; from_seed against from_random on MRR@10: p = 0.5"
    assert drawn[1].get_suptitle() == title


def lists() -> str:
    """Results over candidate lists."""
    metrics = dict.fromkeys(LIST_HEADINGS, 0.5)
    about = {**ABOUT.model_dump(), "candidates": {"lists": 1, "left_out": 0, "fewest": 2, "most": 2}}
    system = {"expression": "x", "metrics": metrics, "stages": [{"stage": "x"}]}
    return json.dumps({"version": 1, "systems": {"x": system}, "about": about, "pairs": []})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "not results of this trainer.evaluate: run it again"),
        ('{"bm25": {"mrr@10": 0.5}, "queries": 1, "corpus": 2}', "version: field required; not results of this"),
        (lists(), "not results over a pool of documents: leave out --candidates or --classes"),
    ],
)
def test_other_results_are_refused(folder: Path, content: str, message: str, refused: Callable[..., str]) -> None:
    (folder / "results.json").write_text(content)
    line = refused(main, folder)
    assert f"{folder / 'results.json'}: " in line
    assert message in line
