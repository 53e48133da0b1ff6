"""The report page, built from real results, as a reader and a browser see it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate, report
from deepsiam.trainer.ranking.evaluation.metrics import HEADINGS
from tests.data_prep.common.test_charts import Reader
from tests.trainer.runs import write_run

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
TAGS = ("loss/softmax", "validation/softmax", "probe/mrr@10", "negatives/age", "lr")


@pytest.fixture(scope="module")
def folder(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, with results and run files."""
    folder = tmp_path_factory.mktemp("runs") / "a & b"
    options = ["--system=bm25", f"--write-runs={folder / 'rankings'}", f"--out={folder / 'results.json'}"]
    for seed, name in enumerate(("one", "two")):
        keys = {"max_query_tokens": 8, "max_document_tokens": 16, "seed": seed}
        write_run(folder / name, toy_collection / "tokenizer.json", name="siamese", **keys)
        options.append(f'--system={name}="{folder / name}"')
        with SummaryWriter(str(folder / name / "tensorboard")) as writer:
            for tag in TAGS:
                for step in range(3):
                    writer.add_scalar(tag, 2.0**-step, 10 * step)
    (folder / "one" / "environment.json").write_text('{"versions": {"torch": "2.9"}}')
    evaluate.main([f"--collection={toy_collection}", "--split=test", *options, "--system=both=fuse(bm25, one)"])
    return folder


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    report.main([str(folder)])
    return (folder / "report.html").read_text()


def test_its_numbers_are_those_of_the_results(folder: Path, text: str) -> None:
    results, read = json.loads((folder / "results.json").read_text()), Reader(text)
    assert [*results["systems"]] == ["bm25", "one", "two", "both"]
    for name, system in results["systems"].items():
        row = read.texts.index("BM25" if name == "bm25" else name)
        assert read.texts[row + 1 : row + 4] == [f"{system['metrics'][metric]:.4f}" for metric in HEADINGS]
    for pair in results["pairs"]:
        at = read.texts.index(f"{pair['difference']:+.4f}")
        assert f"{pair['p_value_holm']:.4f}" in read.texts[at : at + 4]


def test_it_has_every_curve_but_no_other(text: str) -> None:
    charts = [attributes["aria-label"] or "" for tag, attributes in Reader(text).elements if tag == "svg"]
    curves = [chart for chart in charts if ": " in chart]
    assert [chart.split(": ")[1] for chart in curves] == [tag for tag in TAGS if tag != "lr"] * 2
    assert sorted(set(charts) - set(curves)) == ["BM25", "both", "one", "two"]  # charts of scores


def test_it_shows_the_queries_that_differ_and_says_what_it_is_of(folder: Path, text: str, opened: Collection) -> None:
    read = Reader(text)
    assert any(opened.queries.text(i) in read.texts for i in range(len(opened.queries)))
    assert "BM25 is ahead" in read.texts
    assert ("li", {"class": "relevant"}) in read.elements
    assert read.texts[read.texts.index("collection") + 1] == str(opened.directory)
    assert read.texts[read.texts.index("checkpoint of one") + 1].startswith(str(folder / "one" / "checkpoints"))
    assert "SHA-256 of corpus.jsonl" in read.texts
    assert read.texts[read.texts.index("versions") + 1] == "torch 2.9"


def test_without_run_files_it_says_how_to_get_them(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "runs", ignore=shutil.ignore_patterns("rankings", "two"))
    report.main([str(tmp_path / "runs")])
    texts = Reader((tmp_path / "runs" / "report.html").read_text()).texts
    assert any(f"trainer.evaluate --write-runs {tmp_path / 'runs' / 'rankings'}" in line for line in texts)


@pytest.mark.parametrize("changed", ["ranking", "collection", "split"])
def test_rankings_of_another_evaluation_are_not_shown(changed: str, folder: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(folder, tmp_path / "runs", ignore=shutil.ignore_patterns("two"))
    if changed == "ranking":
        lines = (runs / "rankings" / "one.trec").read_text().splitlines()
        fewer = [line for line in lines if int(line.split()[3]) > 3]  # the first three of each query are gone
        (runs / "rankings" / "one.trec").write_text("\n".join(fewer) + "\n")
    else:
        results = json.loads((runs / "results.json").read_text())
        results["about"]["collection_sha256"] = "0" * 64
        results["about"]["split"] = "test" if changed == "collection" else "gone"
        (runs / "results.json").write_text(json.dumps(results))
    report.main([str(runs)])
    (note,) = [line for line in Reader((runs / "report.html").read_text()).texts if line.startswith("No scores and no")]
    assert ("the run file of one is from another evaluation" if changed == "ranking" else "is another one than") in note


def test_a_run_file_of_something_else_is_refused(folder: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    runs = shutil.copytree(folder, tmp_path / "runs", ignore=shutil.ignore_patterns("report.html", "two"))
    (runs / "rankings" / "one.trec").write_text("q Q0 d 1 0.5 one\n")
    assert "one.trec:1: the collection has no query 'q'" in refused(report.main, runs)
    assert not (runs / "report.html").exists()


@pytest.mark.skipif(not BROWSER, reason="needs chromium")
def test_a_browser_shows_and_prints_it(folder: Path, text: str, tmp_path: Path) -> None:
    assert BROWSER
    url = (folder / "report.html").as_uri()
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    pdf, image = tmp_path / "page.pdf", tmp_path / "page.png"
    for wanted in (f"--print-to-pdf={pdf}", f"--screenshot={image}"):
        subprocess.run([BROWSER, *options, wanted, url], capture_output=True, timeout=120, check=True)
    assert pdf.read_bytes().startswith(b"%PDF")
    assert image.read_bytes().startswith(b"\x89PNG")
    assert len(text) < 200_000
