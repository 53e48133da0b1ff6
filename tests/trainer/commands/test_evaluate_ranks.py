"""trainer.evaluate on several ranks, in separate processes."""

import json
from pathlib import Path

import pytest

from tests import toy
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


def systems(folder: Path, toy_collection: Path) -> list[str]:
    """A Siamese network, a ColBERT, a sparse encoder, and a cross-encoder and a duoBERT that re-rank."""
    tokenizer = toy_collection / "tokenizer.json"
    write_run(folder / "siamese", tokenizer, name="siamese", **LENGTHS)
    write_run(folder / "colbert", tokenizer, name="colbert", dimension=8, **LENGTHS)
    write_run(folder / "sparse", tokenizer, name="sparse", **LENGTHS)
    write_run(folder / "cross", tokenizer, name="cross_encoder", negatives_per_query=1, **LENGTHS)
    write_run(folder / "duo", tokenizer, name="duobert", negatives_per_query=1, **LENGTHS)
    models = [f"--system={name}={folder / name}" for name in ("siamese", "colbert", "sparse")]
    combined = [f"--system=p=bm25 > 20 +{folder / 'cross'}", f"--system=duo=p > 5 {folder / 'duo'}(pairs=2)"]
    return [f"--collection={toy_collection}", "--split=test", "--system=bm25", *models, *combined]


@pytest.mark.slow  # separate processes
def test_two_ranks_rank_as_one(toy_collection: Path, tmp_path: Path) -> None:
    files, given = {}, systems(tmp_path / "runs", toy_collection)
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        out = [f"--out={folder / 'results.json'}", f"--write-runs={folder / 'rankings'}"]
        done = toy.launch(ranks, "trainer.evaluate", *given, *out, OMP_NUM_THREADS=1)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Recall@100") == 1  # only rank 0 prints
        files[ranks] = {file.name: file.read_bytes() for file in (folder / "rankings").iterdir()}
        lines = [line for line in done.stdout.splitlines() if " s > " not in line]
        results = json.loads((folder / "results.json").read_text())
        for system in results["systems"].values():
            for stage in system["stages"]:
                stage.pop("seconds")
        files[ranks] |= {"results": json.dumps(results).encode(), "lines": "\n".join(lines).encode()}
    assert files[1] == files[2]


@pytest.mark.slow  # separate processes
def test_what_all_ranks_find_is_said_once(toy_collection: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", noise=1e30, name="siamese", **LENGTHS)
    given = [f"--collection={toy_collection}", "--split=test", f"--system=m={run}", f"--out={tmp_path / 'out'}"]
    done = toy.launch(2, "trainer.evaluate", *given, OMP_NUM_THREADS=1)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert said.count("trainer.evaluate: ") == said.count("the model's embeddings are not finite") == 1, said
    assert not (tmp_path / "out").exists()
