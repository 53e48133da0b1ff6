"""trainer.evaluate --collections: one table of many collections, continued where it stopped."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers.tokenizer import load, train
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.evaluation import many_collections
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from tests.trainer.runs import write_run

METHOD = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}


def copy_raw(collection: Path, folder: Path) -> Path:
    """Copy only what BEIR's layout has."""
    folder.mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copy(collection / name, folder / name)
    shutil.copytree(collection / "qrels", folder / "qrels")
    return folder


@pytest.fixture
def beir(toy_collection: Path, tmp_path: Path) -> Path:
    """A tokenised collection, one in BEIR's layout alone with half of the test queries, and a file."""
    shutil.copytree(toy_collection, tmp_path / "beir" / "whole")
    qrels = copy_raw(toy_collection, tmp_path / "beir" / "half") / "qrels" / "test.tsv"
    header, *lines = qrels.read_text().splitlines()
    queries = sorted({line.split("\t")[0] for line in lines})[:10]
    qrels.write_text("\n".join([header, *(line for line in lines if line.split("\t")[0] in queries)]) + "\n")
    (tmp_path / "beir" / "README").write_text("")
    return tmp_path / "beir"


@pytest.fixture(scope="module")
def run(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run") / "run", toy_collection / "tokenizer.json", **METHOD)


@pytest.fixture(scope="module")
def bm25_results(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "out"
    evaluate.main(arguments(toy_collection, out, "--system=bm25"))
    return out


def arguments(pattern: object, out: Path, *rest: str) -> list[str]:
    return ["--collections", str(pattern), "--split", "test", "--out", str(out), *rest]


def refused(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """Run the command; return the last line that it says."""
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(argv)
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_one_table_has_a_row_a_system_and_a_column_a_collection_and_what_is_finished_is_not_ranked_again(
    beir: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = arguments(f"{beir}/*", tmp_path / "out", "--metrics", "map@10", "recall@100")
    evaluate.main([*given, "--system=bm25", f"--system=mine={run}"])
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split() == ["half", "whole", "mean", "p"])
    opened = [Collection.open(tmp_path / "out" / "collections" / "half"), Collection.open(beir / "whole")]
    values = {
        "BM25": [evaluate_split(Bm25Ranker(c), "test").values["ndcg@10"] for c in opened],
        "mine": [evaluate_split(open_ranker(run, c), "test").values["ndcg@10"] for c in opened],
    }
    assert [len(each) for each in values["mine"]] == [10, 20]
    for line, (name, rows) in zip(lines[start + 1 : start + 3], values.items(), strict=True):
        means = [row.mean() for row in rows]
        assert line.split()[:4] == [name, *(f"{mean:.4f}" for mean in (*means, np.mean(means)))]
    flat = {name: np.concatenate([rows[0] / 20, rows[1] / 40]) for name, rows in values.items()}
    assert lines[start + 2].split()[4] == f"{paired_permutation_test(flat['mine'], flat['BM25']):.4f}"
    assert "from that of BM25, over all 30 queries" in lines[start + 4]
    headings = [line.split(";")[0] for line in lines if line.startswith(("nDCG@10;", "MAP@10;", "Recall@100;"))]
    assert headings == ["nDCG@10", "MAP@10", "Recall@100"]

    (tmp_path / "out" / "whole.json").unlink()  # as if the command had been stopped after the first
    ranked: list[str] = []
    compare = many_collections.compare
    monkeypatch.setattr(
        many_collections,
        "compare",
        lambda s, *a, **k: ranked.append(s.collection.directory.name) or compare(s, *a, **k),
    )
    evaluate.main([*given, "--system=bm25", f"--system=mine={run}"])
    assert ranked == ["whole"]
    assert capsys.readouterr().out.splitlines()[-5:] == lines[-5:]
    evaluate.main([*given, f"--system=mine={run}", "--system=bm25"])  # in another order: the same results
    assert ranked == ["whole"]
    assert "from that of mine, over all" in capsys.readouterr().out.splitlines()[-1]


def test_results_of_a_run_that_was_trained_anew_are_refused(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, run = tmp_path / "out", write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHOD)
    given = arguments(toy_collection, out, f"--system=mine={run}")
    evaluate.main(given)
    prompt = toy_collection / "manifest.json"  # any file
    (file,) = [path for path in out.glob("*.json") if "systems" in json.loads(path.read_text())]
    for changed, words in (
        ({"precision": "bf16"}, "computed in bf16, not fp32: remove the file"),
        ({"files": {str(prompt): "0" * 64}}, f"of {prompt} as it was, and it differs now"),
    ):
        results = json.loads(file.read_text())
        assert results["systems"]["mine"]["stages"][0]["precision"] == "fp32"
        results["systems"]["mine"]["stages"][0] |= changed
        (tmp_path / "forged").mkdir(exist_ok=True)
        (tmp_path / "forged" / file.name).write_text(json.dumps(results))
        assert words in refused(capsys, [*given, f"--out={tmp_path / 'forged'}"])
    shutil.rmtree(run)
    write_run(run, toy_collection / "tokenizer.json", seed=2, **METHOD)
    line = refused(capsys, given)
    assert line.startswith(f"trainer.evaluate: {out}/")
    assert line.endswith("differs: remove the file")


@pytest.mark.parametrize(
    "change",
    [
        ["--split", "train"],
        ["--system=again=bm25"],
        ["--metrics", "map@5"],
        ["--ignore-identical-ids", "on"],
        ["--precision", "bf16"],
    ],
)
def test_results_of_other_systems_or_options_are_not_continued(
    change: list[str], bm25_results: Path, toy_collection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(toy_collection, bm25_results, "--system=bm25", *change)
    assert "of other systems, texts or options" in refused(capsys, given)


def test_results_of_other_texts_with_the_same_names_are_refused(
    beir: Path, run: Path, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--system=bm25", f"--system=mine={run}"]
    evaluate.main(arguments(beir / "half", tmp_path / "out", *given))
    for folder in (copy_raw(toy_collection, tmp_path / "other" / "half"), beir / "half"):
        qrels = folder / "qrels" / "test.tsv"
        qrels.write_text("\n".join(qrels.read_text().splitlines()[:-1]) + "\n")
        line = refused(capsys, arguments(folder, tmp_path / "out", *given))
        copy = tmp_path / "out" / "collections" / "half"
        assert f"{copy}: was made of other files than {folder}: remove it" in line
    shutil.rmtree(copy)
    line = refused(capsys, arguments(beir / "half", tmp_path / "out", *given))
    assert "half.json: of other systems, texts or options: remove it" in line


def test_collections_of_other_tokenizers_are_refused_before_the_first_is_ranked(
    toy_collection: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(toy_collection, tmp_path / "many" / "a")
    texts = copy_raw(toy_collection, tmp_path / "many" / "b")
    train(["one two three"] * 9, 300, tmp_path / "tokenizer.json")
    build("beir", [texts], texts, load(tmp_path / "tokenizer.json"))
    given = arguments(f"{tmp_path}/many/*", tmp_path / "out")
    assert "b was tokenised with another tokenizer than" in refused(capsys, [*given, f"--system=mine={run}"])
    evaluate.main([*given, "--system=bm25"])


def test_folders_of_one_name_without_a_tokenizer_a_split_or_relevant_documents_are_refused(
    toy_collection: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a/same", "b/same", "c/none"):
        copy_raw(toy_collection, tmp_path / name)
    qrels = tmp_path / "c" / "none" / "qrels" / "test.tsv"
    qrels.write_text(qrels.read_text().replace("\t1\n", "\t0\n"))
    for pattern, rest, said in (
        ("[ab]/*", ["--system=bm25"], "have the same name: rename one"),
        ("a/*", ["--system=bm25"], "is not tokenised, and no system has a tokenizer"),
        ("a/*", [f"--system=mine={run}", "--split=other"], "no split 'other'"),
        ("c/*", [f"--system=mine={run}"], "the pool of split test has no relevant document"),
    ):
        assert said in refused(capsys, arguments(tmp_path / pattern, tmp_path / "out", *rest))
