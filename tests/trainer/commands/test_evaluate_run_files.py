"""trainer.evaluate with TREC run files: written, read, compared and ranked again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import evaluate
from tests.trainer.commands.test_evaluate import SIAMESE, arguments
from tests.trainer.runs import write_run


def test_run_files_are_written_read_compared_and_ranked_again(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, folder = toy_collection / "tokenizer.json", tmp_path / "written"
    one = write_run(tmp_path / "one", tokenizer, seed=1, similarity="cosine", pooling="mean", **SIAMESE)
    two = write_run(tmp_path / "two", tokenizer, seed=2, **SIAMESE)
    first = [f"--system=one={one}", "--system=bm25", "--system=fused=fuse(bm25, one)", f"--write-runs={folder}"]
    evaluate.main(arguments(toy_collection, tmp_path / "a.json", *first))
    assert sorted(path.name for path in folder.iterdir()) == ["bm25.trec", "fused.trec", "one.trec"]
    results = json.loads((tmp_path / "a.json").read_text())["systems"]
    capsys.readouterr()
    again = [f"--system=read-{name}={folder / name}.trec" for name in ("bm25", "one", "fused")]
    evaluate.main(arguments(toy_collection, tmp_path / "b.json", *again, f"--system=two={two}", "--all-pairs"))
    read = json.loads((tmp_path / "b.json").read_text())
    for name in ("bm25", "one", "fused"):
        assert read["systems"][f"read-{name}"]["metrics"] == results[name]["metrics"]
        assert read["systems"][f"read-{name}"]["expression"] == str(folder / f"{name}.trec")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:5]] == ["read-bm25", "read-one", "read-fused", "two"]
    pairs = [line for line in printed if line.startswith("  ") and "interval" in line]
    assert len(pairs) == len(read["pairs"]) == 6
    assert "MRR@10, every pair; p corrected by Holm for 6 of them:" in printed
    assert f"p = {read['pairs'][0]['p_value_holm']:.4f}" in pairs[0]
    assert not any(line.startswith("MRR@10: ") for line in printed)  # one model


def test_a_run_file_is_re_ranked_and_fused_like_what_it_was_written_of(toy_collection: Path, tmp_path: Path) -> None:
    keys = {"max_query_tokens": 8, "max_document_tokens": 16, "loss": "binary", "hard_negatives": 1}
    cross = write_run(tmp_path / "cross", toy_collection / "tokenizer.json", name="cross_encoder", **keys)
    out, read = tmp_path / "a.json", tmp_path / "bm25.trec"
    evaluate.main(arguments(toy_collection, out, "--system=bm25", f"--write-runs={tmp_path}"))
    systems = [
        f"--system={name}={text.format(first)}"
        for number, text in enumerate((f"{{}} > 10 {cross}", f"{{}} > 10 +{cross}", f"fuse({{}}, bm25 > 10 {cross})"))
        for name, first in ((f"bm25-{number}", "bm25"), (f"read-{number}", str(read)))
    ]
    evaluate.main(arguments(toy_collection, out, *systems))
    results = json.loads(out.read_text())["systems"]
    for number in range(3):
        assert results[f"read-{number}"]["metrics"] == results[f"bm25-{number}"]["metrics"]
    whys = [results[f"read-{number}"]["stages"][-1].get("why") for number in range(3)]
    assert whys == [None, *["a run file has no other split to choose a weight on"] * 2]


def test_ids_with_spaces_are_refused_before_anything_is_ranked(
    toy_collection: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = tmp_path / "c"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "a b", "text": "one"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "one"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta b\t1\n")
    build("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))
    options = ["--system=bm25", f"--write-runs={tmp_path / 'rankings'}"]
    line = refused(evaluate.main, *arguments(folder, tmp_path / "out" / "a.json", *options))
    assert "the id 'a b': run files cannot have ids with spaces in them" in line
    assert {path.name for path in tmp_path.iterdir()} == {"c"}
