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

RAW = ("corpus.jsonl", "queries.jsonl", "qrels", "pools")


def copy_raw(collection: Path, folder: Path) -> Path:
    """Copy only what BEIR's layout has."""
    folder.mkdir(parents=True)
    for name in RAW:
        if (collection / name).is_dir():
            shutil.copytree(collection / name, folder / name)
        elif (collection / name).exists():
            shutil.copy(collection / name, folder / name)
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


@pytest.fixture
def run(toy_collection: Path, tmp_path: Path) -> Path:
    method = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}
    return write_run(tmp_path / "run", toy_collection / "tokenizer.json", **method)


def arguments(beir: Path, out: Path, *rest: str) -> list[str]:
    return ["--collections", f"{beir}/*", "--split", "test", "--out", str(out), *rest]


def refused(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """Run the command; return the last line that it says."""
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(argv)
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_one_table_has_a_row_a_system_and_a_column_a_collection(
    beir: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate.main(
        arguments(beir, tmp_path / "out", "--system=bm25", f"--system=mine={run}", "--metrics", "map@10", "recall@100")
    )
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split() == ["half", "whole", "mean", "p"])
    opened = {
        "half": Collection.open(tmp_path / "out" / "collections" / "half"),
        "whole": Collection.open(beir / "whole"),
    }
    values = {
        "BM25": [evaluate_split(Bm25Ranker(c), "test").values["ndcg@10"] for c in opened.values()],
        "mine": [evaluate_split(open_ranker(run, c), "test").values["ndcg@10"] for c in opened.values()],
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


def test_a_finished_collection_is_not_ranked_again(
    beir: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = arguments(beir, tmp_path / "out", "--system=bm25", f"--system=mine={run}")
    evaluate.main(given)
    table = capsys.readouterr().out.splitlines()[-5:]
    (tmp_path / "out" / "whole.json").unlink()  # as if the command had been stopped after the first
    ranked: list[str] = []
    compare = many_collections.compare
    monkeypatch.setattr(
        many_collections,
        "compare",
        lambda s, *a, **k: ranked.append(s.collection.directory.name) or compare(s, *a, **k),
    )
    evaluate.main(given)
    assert ranked == ["whole"]
    assert capsys.readouterr().out.splitlines()[-5:] == table


def test_the_first_system_is_the_baseline_whatever_the_order_before(
    toy_collection: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--collections", str(toy_collection), "--split", "test", "--out", str(tmp_path / "out")]
    for first, second in (("bm25", f"mine={run}/"), (f"mine={run}/", "bm25")):
        evaluate.main([*given, "--system", first, "--system", second])
        lines = capsys.readouterr().out.splitlines()
        assert f"from that of {'BM25' if first == 'bm25' else 'mine'}, over all" in lines[-1]


def test_results_of_a_run_that_was_trained_anew_are_refused(
    toy_collection: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ["--collections", str(toy_collection), "--split", "test", f"--system=mine={run}", "--out", str(out)]
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
        assert words in refused(capsys, [*given[:-1], str(tmp_path / "forged")])
    shutil.rmtree(run)
    keys = {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 16}
    write_run(run, toy_collection / "tokenizer.json", seed=2, **keys)
    line = refused(capsys, given)
    assert line.startswith(f"trainer.evaluate: {out}/")
    assert line.endswith("differs: remove the file")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--system=bm25", "--split", "train"], "of other systems, texts or options"),
        (["--system=bm25", "--system=again=bm25"], "of other systems, texts or options"),
        (["--system=bm25", "--metrics", "map@5"], "of other systems, texts or options"),
        (["--system=bm25", "--ignore-identical-ids", "on"], "of other systems, texts or options"),
        (["--system=bm25", "--precision", "bf16"], "of other systems, texts or options"),
        (["--system=bm25", "--metrics", "map"], "'map' is not a metric"),
        (["--system=bm25", "--split", "other"], "no split 'other'"),
        (["--system=bm25", "--candidates"], "--candidates needs --collection"),
    ],
)
def test_what_cannot_be_continued_is_one_line(
    change: list[str], said: str, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    first = ["--collections", str(toy_collection), "--split", "test", "--out", str(out)]
    if "other" not in change:
        evaluate.main([*first, "--system=bm25"])
    capsys.readouterr()
    assert said in refused(capsys, [*first, *change])


def test_results_of_other_texts_with_the_same_names_are_refused(
    beir: Path, run: Path, toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--split", "test", "--system=bm25", f"--system=mine={run}", "--out", str(tmp_path / "out")]
    evaluate.main(["--collections", f"{beir}/half", *given])
    for folder in (copy_raw(toy_collection, tmp_path / "other" / "half"), beir / "half"):
        qrels = folder / "qrels" / "test.tsv"
        qrels.write_text("\n".join(qrels.read_text().splitlines()[:-1]) + "\n")
        line = refused(capsys, ["--collections", str(folder), *given])
        copy = tmp_path / "out" / "collections" / "half"
        assert f"{copy}: was made of other files than {folder}: remove it" in line
    shutil.rmtree(copy)
    assert "half.json: of other systems, texts or options: remove it" in refused(
        capsys, ["--collections", f"{beir}/half", *given]
    )


def test_collections_of_other_tokenizers_are_refused_before_the_first_is_ranked(
    toy_collection: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(toy_collection, tmp_path / "many" / "a")
    texts = copy_raw(toy_collection, tmp_path / "many" / "b")
    train(["one two three"] * 9, 300, tmp_path / "tokenizer.json")
    build("beir", [texts], texts, load(tmp_path / "tokenizer.json"))
    given = ["--collections", f"{tmp_path}/many/*", "--split", "test", "--out", str(tmp_path / "out")]
    assert "b was tokenised with another tokenizer than" in refused(capsys, [*given, f"--system=mine={run}"])
    evaluate.main([*given, "--system=bm25"])


def test_an_empty_pattern_folders_of_one_name_and_a_split_without_relevant_documents_are_refused(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in "ab":
        copy_raw(toy_collection, tmp_path / folder / "same")
    qrels = copy_raw(toy_collection, tmp_path / "c" / "none") / "qrels" / "test.tsv"
    header, *lines = qrels.read_text().splitlines()
    qrels.write_text("\n".join([header, *(line.rpartition("\t")[0] + "\t0" for line in lines)]) + "\n")
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese")
    for pattern, system, said in (
        ("nothing/*", "bm25", "matches no collection and no folder with a corpus.jsonl"),
        ("[ab]/*", "bm25", "have the same name: rename one"),
        ("a/*", "bm25", "is not tokenised, and no system has a tokenizer"),
        ("c/*", f"mine={run}", "the pool of split test has no relevant document"),
    ):
        rest = ["--split", "test", "--out", str(tmp_path / "out"), "--system", system]
        assert said in refused(capsys, ["--collections", f"{tmp_path}/{pattern}", *rest])
