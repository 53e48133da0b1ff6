"""trainer.evaluate with TREC run files: written, read, compared and ranked again."""

import json
from pathlib import Path

import pytest

from data_prep.collections.build import build
from data_prep.tokenizers import tokenizer as tokenizers
from tests.trainer.runs import write_run
from tests.trainer.test_evaluate import SIAMESE, arguments
from trainer import evaluate


def test_run_files_are_written_read_compared_and_ranked_again(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, folder = toy_collection / "tokenizer.json", tmp_path / "written"
    one = write_run(tmp_path / "one", tokenizer, seed=1, similarity="cosine", pooling="mean", **SIAMESE)
    two = write_run(tmp_path / "two", tokenizer, seed=2, **SIAMESE)
    first = [f"--model=one={one}", "--bm25", "--fuse=bm25+one", f"--write-runs={folder}"]
    evaluate.main(arguments(toy_collection, tmp_path / "a.json", *first))
    assert sorted(path.name for path in folder.iterdir()) == ["bm25.trec", "fused.trec", "one.trec"]
    results = json.loads((tmp_path / "a.json").read_text())
    capsys.readouterr()
    again = [f"--run=read-{name}={folder / name}.trec" for name in ("bm25", "one", "fused")]
    evaluate.main(arguments(toy_collection, tmp_path / "b.json", *again, f"--model=two={two}", "--all-pairs"))
    read = json.loads((tmp_path / "b.json").read_text())
    for name in ("bm25", "one", "fused"):
        assert read[f"read-{name}"] == results[name]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:5]] == ["read-bm25", "read-one", "read-fused", "two"]
    pairs = [line for line in printed if line.startswith("  ") and "interval" in line]
    assert len(pairs) == len(read["pairs_of_systems"]) == 6
    assert "MRR@10, every pair; p corrected by Holm for 6 of them:" in printed
    assert f"p = {read['pairs_of_systems'][0]['p_value_holm']:.4f}" in pairs[0]
    assert read["p_value"] is None  # one model
    assert read["run_files"] == {f"read-{name}": str(folder / f"{name}.trec") for name in ("bm25", "one", "fused")}


def test_a_run_file_is_ranked_again(toy_collection: Path, tmp_path: Path) -> None:
    keys = {"max_query_tokens": 8, "max_document_tokens": 16, "loss": "binary", "hard_negatives": 1}
    cross = write_run(tmp_path / "cross", toy_collection / "tokenizer.json", name="cross_encoder", **keys)
    evaluate.main(arguments(toy_collection, tmp_path / "a.json", "--bm25", f"--write-runs={tmp_path}"))
    results = []
    for name, of_bm25 in (("read", [f"--run=read={tmp_path / 'bm25.trec'}"]), ("bm25", ["--bm25"])):
        out = tmp_path / f"{name}.json"
        evaluate.main(arguments(toy_collection, out, *of_bm25, f"--model=m={cross}", f"--rerank={name}:10"))
        results.append(json.loads(out.read_text())["m"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--run=a"], "write --run NAME=FILE"),
        (["--run=a=RUN", "--run=a=RUN"], "the name 'a' is taken"),
        (["--run=a/b=RUN"], "a name has no slash"),
        (["--run=a=RUN", "--bm25", "--fuse=bm25+a"], "a scores only some documents: fuse two systems"),
        (["--run=a=none.trec"], "none.trec: cannot read"),
        (["--run=a=RUN", "--candidates"], "--run is for rankings of the whole pool"),
        (["--bm25", "--candidates", "--write-runs=x"], "--write-runs is for rankings of the whole pool"),
        ([], "nothing to evaluate: give --bm25, --model NAME=RUN, --run NAME=FILE, or several of them"),
    ],
)
def test_what_is_wrong_with_run_files_is_one_line(
    toy_collection: Path, tmp_path: Path, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate.main(arguments(toy_collection, tmp_path / "a.json", "--bm25", f"--write-runs={tmp_path}"))
    capsys.readouterr()
    given = [argument.replace("RUN", str(tmp_path / "bm25.trec")) for argument in given]
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(arguments(toy_collection, tmp_path / "out" / "b.json", *given))
    assert stopped.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trainer.evaluate: ")]
    assert message in line
    assert not (tmp_path / "out" / "b.json").exists()


def test_ids_with_spaces_are_refused_before_anything_is_ranked(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "c"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "a b", "text": "one"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "one"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta b\t1\n")
    build("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))
    options = ["--bm25", f"--write-runs={tmp_path / 'rankings'}"]
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(arguments(folder, tmp_path / "out" / "a.json", *options))
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the id 'a b': run files cannot have ids with spaces in them" in line
    assert {path.name for path in tmp_path.iterdir()} == {"c"}
