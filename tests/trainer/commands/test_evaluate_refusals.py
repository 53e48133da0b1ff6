"""What `trainer.evaluate` refuses before anything is ranked: one line, code 2, and nothing is written.

A row is the command's systems and options, and what its line says. Names in capitals stand for what `places` has
written.
"""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.trainer import evaluate
from deepsiam.trainer.interface import evaluation
from tests.trainer.ranking.retrieval.small_collections import candidate_lists, labelled_pairs
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
RUNS = {
    "SIAMESE": {"name": "siamese", **LENGTHS},
    "CROSS": {"name": "cross_encoder", "hard_negatives": 1, **LENGTHS},
    "DUO": {"name": "duobert", "hard_negatives": 1, **LENGTHS},
    "CLASSES": {"name": "cross_encoder", "loss": "classes", "classes": 3, **LENGTHS},
    "SEED": {"name": "seed", "max_tokens": 32, "decoder_layers": 1},
}
M = "m=SIAMESE"
ONLY = "'CROSS' only re-ranks what another system found: write bm25 > 100 CROSS"
ALONE = "a duobert scores a document by comparing it with its list: a score alone means nothing"
ROWS: list[tuple[tuple[str, ...], str]] = [
    ((), "nothing to evaluate: give --system bm25, --system NAME=RUN, or several of them"),
    (("x=fuse(bm25, sed)",), "--system 'x=fuse(bm25, sed)': character 14: 'sed' is no system named before, and is no"),
    (("x=fuse(bm25, gone/run)",), "character 14: 'gone/run' is no file or folder"),
    ((M, "x=m > 9 gone/run"), "character 9: 'gone/run' is no file or folder"),
    ((f"x={'long/' + 300 * 'a'}",), "aaa' is no file or folder"),
    ((M, "x=fuse(bm25, m"), "character 15: the end stands where"),
    ((M, "x=fuse(bm25, m, split=dev)"), "character 3: no split 'dev'; choose one of: test, train"),
    ((M, "x=fuse(bm25, m, split=test)"), "character 3: the weight would be chosen on the queries of test"),
    ((M, "x=bm25 > 9 +m(split=test)"), "character 8: the weight would be chosen on the queries of test"),
    ((M, "x=fuse(bm25, m, rule=scores)"), "character 3: no split dev other than the evaluated one"),
    ((M, "m=bm25"), "character 1: the name 'm' is taken"),
    (("m=SEED",), "fine-tune it first"),
    (("m=FILES",), "train it first"),
    (("bm25", "--split=dev"), "no split 'dev'; choose one of: test, train"),
    (("bm25", "--out="), "is a folder: name a file, in it or elsewhere"),
    (("bm25", "--out=FILES"), "is a folder: name a file, in it or elsewhere"),
    (("bm25", "--metrics=precision@5"), "--metrics: 'precision@5' is not a metric: write mrr@K, ndcg@K, recall@K, map"),
    # models of every kind
    (("c=CROSS",), f"character 3: {ONLY}"),
    (("x=fuse(bm25, CROSS)",), f"character 14: {ONLY}"),
    (("x=CROSS > 5 bm25",), f"character 3: {ONLY}"),
    (("x=CLASSES",), "predicts classes and gives no score to rank by: evaluate with --classes"),
    (("x=bm25 > 5 CLASSES",), "predicts classes and gives no score to rank by: evaluate with --classes"),
    (("x=DUO",), "only re-ranks what another system found"),
    (("x=bm25 > 5 +DUO(weight=0.3)",), "character 8: DUO/checkpoints/step-"),
    (("x=bm25 > 5 +DUO(split=train)",), ALONE),
    (("x=fuse(bm25, bm25 > 5 DUO, weight=0.3)",), ALONE),
    (("x=bm25 > 9 DUO > 5 +CROSS(weight=0.3)",), ALONE),
    (("x=bm25 > 101 DUO",), "re-rank 100 or fewer, or allow it with the option most=101"),
    (("x=bm25 > 1 DUO",), "compares the documents of a list: re-rank 2 or more"),
    (("x=bm25 > 5 DUO(aggregate=mean)",), "'mean': aggregate is sum, binary"),
    (("x=bm25 > 5 CROSS(pairs=unordered)",), "has no options: leave out pairs=..."),
    # run files
    (("FILES/a.trec",), "character 1: give the system a name: NAME="),
    (("a=FILES/a.trec", "a=FILES/a.trec"), "the name 'a' is taken"),
    (("a/b=FILES/a.trec",), "the name 'a/b' has a slash"),
    (("a=none.trec",), "'none.trec' is no system named before, and is no file or folder"),
    (("a=bm25 > 9 FILES/a.trec",), "is a run file, which scores nothing anew: name a model"),
    (("a=FILES/a.trec(pairs=9)",), "is a run file, which has no options"),
    (("a=fuse(bm25, FILES/a.trec, rule=scores)",), "a run file has no other split to choose a weight on: give a"),
    (("a=FILES/a.trec", "--write-runs=FILES"), "a.trec: name another folder"),
    (("b=fuse(bm25, FILES/a.trec, weight=0.3)", "a=bm25", "--write-runs=FILES"), "would write over"),
    # candidates and classes
    (("--candidates", "--classes", M), "leave out one"),
    (
        ("--candidates", M, "--metrics=mrr@5"),
        "--metrics is for rankings of the whole pool: leave it out, or --candidat",
    ),
    (("--candidates", "bm25", "--write-runs=x"), "--write-runs is for rankings of the whole pool"),
    (
        ("--candidates", "x=fuse(bm25, SIAMESE)"),
        "--system 'x=fuse(bm25, SIAMESE)': --candidates is for single models: leave it out, or --candidates",
    ),
    (("--candidates", "a=FILES/a.trec"), "--candidates is for single models"),
    (("--candidates", M), "no candidate lists"),
    (("--collection=PAIRS", "--candidates", M), "its labels are classes"),
    (("--collection=LISTS", "--classes", "c=CLASSES"), "its labels are not classes"),
    (("--collection=PAIRS", "--classes", M), "does not predict classes"),
    (
        ("--collection=PAIRS", "--classes", "bm25", "c=CLASSES"),
        "BM25 does not predict classes: leave it out, or --clas",
    ),
]


@pytest.fixture(scope="module")
def places(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, collections of lists and of classes, and a run file, in the folders of their names."""
    folder, tokenizer = tmp_path_factory.mktemp("places"), toy_collection / "tokenizer.json"
    for name, method in RUNS.items():
        write_run(folder / name, tokenizer, **method)
    candidate_lists(folder / "lists", tokenizer).directory.rename(folder / "LISTS")
    labelled_pairs(folder / "pairs", tokenizer).directory.rename(folder / "PAIRS")
    (folder / "FILES").mkdir()
    (folder / "FILES" / "a.trec").write_text("")
    return folder


def refusal(capsys: pytest.CaptureFixture[str], argv: Sequence[str]) -> str:
    """Run the command; return the one line that it says."""
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(argv)
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    return printed.err


@pytest.mark.parametrize(("words", "message"), ROWS, ids=[" ".join(words)[:60] for words, _ in ROWS])
def test_refuses_in_one_line(
    words: Sequence[str],
    message: str,
    places: Path,
    toy_collection: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("compare", "compare_lists"):
        monkeypatch.setattr(evaluation, name, Mock(side_effect=AssertionError("ranked")))
    known = {name: f"{places.name}/{name}" for name in (*RUNS, "LISTS", "PAIRS", "FILES")}
    monkeypatch.chdir(places.parent)

    def placed(text: str) -> str:
        for name, path in known.items():
            text = text.replace(name, path)
        return text

    given = [placed(word if word.startswith("--") else f"--system={word}") for word in words]
    where = [f"--collection={toy_collection}", "--split=test", f"--out={tmp_path / 'new' / 'r.json'}"]
    assert message in refusal(capsys, [*where, *given]).replace(f"{places.name}/", "")
    assert not (tmp_path / "new" / "r.json").exists()
