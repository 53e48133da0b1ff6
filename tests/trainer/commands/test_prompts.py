"""Every command puts a run's prompts before texts: all is as if the texts themselves began with them."""

import json
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import evaluate, index, search
from deepsiam.trainer.trace import main as trace
from tests import toy
from tests.trainer.ranking.indexes.five_blocks import tree
from tests.trainer.runs import write_run

QUERY, DOCUMENT = "abc de ", "fgh "
METHODS = {
    "siamese": {"similarity": "cosine", "pooling": "mean"},
    "colbert": {"dimension": 16},
    "poly_encoder": {"m": 4},
}


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the collection `plain`, the same texts behind prompts in `spelled`, and runs for each."""
    folder, tokenizer_json = tmp_path_factory.mktemp("made"), toy_collection / "tokenizer.json"
    shutil.copytree(toy_collection, folder / "plain")
    spelled = shutil.copytree(toy_collection, folder / "spelled")
    for name, prompt in (("queries", QUERY), ("corpus", DOCUMENT)):
        file = spelled / f"{name}.jsonl"
        file.write_text(file.read_text().replace('"text": "', f'"text": "{prompt}'))
    build("beir", [spelled], spelled, tokenizers.load(tokenizer_json))
    for name, keys in METHODS.items():
        lengths = {"max_query_tokens": 14, "max_document_tokens": 20, "kept_of_query": "start"}
        prompts = {"query_prompt": QUERY, "document_prompt": DOCUMENT}
        write_run(folder / f"{name}-plain", tokenizer_json, name=name, **keys, **lengths, **prompts)
        write_run(folder / f"{name}-spelled", tokenizer_json, name=name, **keys, **lengths)
    return folder


@pytest.mark.parametrize("name", ["siamese", "poly_encoder"])
def test_evaluate_ranks_as_with_prompts_in_the_texts(made: Path, name: str, tmp_path: Path) -> None:
    metrics = {}
    first = "bm25 > 20 " if name == "poly_encoder" else ""
    for texts, run in (("plain", "plain"), ("spelled", "spelled"), ("plain", "spelled")):
        given = [f"--collection={made / texts}", "--split=test", f"--system=m={first}{made / f'{name}-{run}'}"]
        out = [f"--out={tmp_path / 'results.json'}", f"--write-runs={tmp_path / f'{texts}-{run}'}"]
        evaluate.main([*given, *out])
        (file,) = (tmp_path / f"{texts}-{run}").iterdir()
        metrics[texts, run] = [line.split()[:4] for line in file.read_text().splitlines()]
    if name != "poly_encoder":  # BM25 reads the texts alone
        assert metrics["plain", "plain"] == metrics["spelled", "spelled"]
    assert metrics["plain", "plain"] != metrics["plain", "spelled"]


def test_an_index_and_its_searches_have_them(made: Path, tmp_path: Path) -> None:
    found = {}
    for kind in ("plain", "spelled"):
        out = tmp_path / kind
        index.main([str(made / f"colbert-{kind}"), f"--collection={made / kind}", f"--out={out}"])
        search.main([str(out), "--queries=test", f"--write-run={tmp_path / f'{kind}.run'}", "--k=10"])
        found[kind] = [line.split()[:4] for line in (tmp_path / f"{kind}.run").read_text().splitlines()]
    assert found["plain"] == found["spelled"]
    about = json.loads((tmp_path / "plain" / "manifest.json").read_text())["model"]
    assert (about["query_prompt"], about["document_prompt"]) == (QUERY, DOCUMENT)
    blocks = [{f: data for f, data in tree(tmp_path / kind).items() if str(f).endswith(".npy")} for kind in found]
    assert blocks[0] == blocks[1]


def test_a_step_decoded_shows_them(toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = {"query_prompt": QUERY, "document_prompt": DOCUMENT}
    recipe = toy.finetune_recipe(tmp_path / "run.yaml", toy_collection, trunk=toy.TRUNK, method=method)
    trace([str(recipe), "--show", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(f"[CLS] {QUERY}" in line for line in lines) == 8
    assert sum(f"[CLS] {DOCUMENT}" in line for line in lines) == 8
