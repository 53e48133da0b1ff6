"""What goes with an export: its model card, a Parquet table of an index, and the commands of docs/serve.md."""

import importlib
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from pyarrow import parquet

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.hub import local_files
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.export import main
from deepsiam.trainer.index import main as index
from deepsiam.trainer.ranking.evaluation.compare import compare
from deepsiam.trainer.ranking.evaluation.expression import read_systems
from deepsiam.trainer.ranking.evaluation.results_file import write_results
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.export import vectors_table
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.run.events import open_events
from tests import toy
from tests.hub import Hub
from tests.trainer.runs import STEP, write_run

METHODS: dict[str, dict[str, Any]] = {
    "siamese": {"name": "siamese", "max_query_tokens": 8, "max_document_tokens": 24},
    "seed": {"name": "seed", "max_tokens": 32},
}


def card_of(run: Path, out: Path) -> tuple[dict[str, Any], str]:
    """Export a run; return the front matter and the text of the README.md."""
    export_encoder(load_trained(run), out)
    empty, front, text = (out / "README.md").read_text().split("---\n", 2)
    assert not empty
    return yaml.safe_load(front), text


@pytest.mark.parametrize("name", METHODS)
def test_the_card_has_tags_licence_base_data_and_recipe(
    name: str, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHODS[name])
    front, text = card_of(run, tmp_path / "out")
    assert front["license"] == "unknown"
    assert front["library_name"]
    assert "deepsiam" in front["tags"]
    recipe = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert recipe["method"] == METHODS[name]
    base, data = ("`p`", "`c`, split train") if name == "siamese" else ("random weights", "`s`")
    assert f"- Base: {base}\n- Data: {data}\n" in text
    assert "Measured" not in text
    if name == "siamese":
        (tmp_path / "c").symlink_to(toy_collection)
        monkeypatch.chdir(tmp_path)
        counts = Collection.open(toy_collection).manifest["counts"]
        documents, queries = counts["corpus"]["texts"], counts["splits"]["train"]
        words = f"`c`: {documents:,} documents; split train, {queries:,} queries with their judged documents\n"
        assert words in card_of(run, tmp_path / "counted")[1]


EVIL = "x`` | <img src=x onerror=alert(1)>\n```\n# [a](javascript:b) &lt;"


def test_a_foreign_recipe_is_no_markup_and_the_hub_is_linked(hub: Hub, toy_collection: Path, tmp_path: Path) -> None:
    trained = load_trained(write_run(tmp_path / "run", toy_collection / "tokenizer.json", **METHODS["siamese"]))

    def text_with(data: dict[str, Any], out: str, **changes: Any) -> str:
        recipe = trained.recipe.model_copy(update={"data": trained.recipe.data.model_copy(update=data), **changes})
        export_encoder(replace(trained, recipe=recipe), tmp_path / out)
        return (tmp_path / out / "README.md").read_text()

    text = text_with({"collection": EVIL, "split": EVIL}, "evil", init_from=EVIL, run=EVIL).split("---\n", 2)[2]
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not re.search("<(img|a |h1>a|td)", page)
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 8  # run, base, data and split, twice each
    assert page.count("&amp;lt;") == 8

    hub.publish("owner/data", {"train.jsonl": b'{"query": "fox", "document": "a fox"}\n'}, "datasets")
    tokenizer = tokenizers.load(toy_collection / "tokenizer.json")
    build("pairs", [Path(*local_files("hf://datasets/owner/data/*.jsonl"))], tmp_path / "c", tokenizer)
    start = f"hf://owner/mine@{'a' * 40}"
    assert f"- Base: `{start}`" in text_with({"collection": tmp_path / "c"}, "out", init_from=start)
    read = ModelCard.load(tmp_path / "out" / "README.md").data
    assert (read.base_model, read.datasets) == ("owner/mine", ["owner/data"])


def test_the_card_has_what_the_run_and_evaluate_measured(toy_collection: Path, tmp_path: Path) -> None:
    """The run has the name of the folder that a run keeps its best in."""
    run = write_run(tmp_path / "best", toy_collection / "tokenizer.json", **METHODS["siamese"])
    with open_events(run / "tensorboard", 1) as events:
        events.add_scalar("probe/ndcg@10", 0.25, STEP - 1)
        events.add_scalar("probe/ndcg@10", 0.5, STEP)
        events.add_scalar("loss/softmax", 3.0, STEP)
    given = read_systems(["bm25", f"mine={run}", "b=mine(query_prompt=abc)"])
    results = compare(Systems.open(Collection.open(toy_collection), given), "test")
    write_results(tmp_path / "results.json", results)
    (tmp_path / "other.json").write_text("{}")
    front, text = card_of(run, tmp_path / "out")
    read = ModelCard.load(tmp_path / "out" / "README.md").data  # as the hub reads it
    assert read.model_name == "out"
    assert {result.metric_type: result.metric_value for result in read.eval_results} == results.systems["mine"].metrics
    assert {(r.dataset_name, r.dataset_split, r.task_type) for r in read.eval_results} == {
        (toy_collection.name, "test", "information-retrieval")
    }
    assert "base_model" not in front  # `p` is no name of the hub
    mrr = results.systems["mine"].metrics["mrr@10"]
    assert f"Measured at step {STEP}:" in text
    assert "| of the run | probe/ndcg@10 | 0.5000 |" in text
    assert f"| of results.json | {toy_collection}, test: mrr@10 | {mrr:.4f} |" in text
    assert "loss/softmax" not in text
    assert "other.json" not in text
    forged = json.loads((tmp_path / "results.json").read_text())
    forged["systems"]["mine"]["stages"][0]["checkpoint_sha256"] = "0" * 64  # as if trained anew since
    (tmp_path / "results.json").write_text(json.dumps(forged))
    assert "of results.json" not in card_of(run, tmp_path / "later")[1]


LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 24}
DENSE = {"name": "siamese", "pooling": "mean", "similarity": "cosine", **LENGTHS}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_its_rows_are_the_ids_and_vectors_of_the_documents(
    toy_collection: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **DENSE)
    index([str(run), "--collection", str(toy_collection), "--out", str(tmp_path / "index"), "--dtype", dtype])
    capsys.readouterr()
    monkeypatch.setattr(vectors_table, "ROWS", 50)  # several groups
    out = tmp_path / "mine.parquet"
    main([str(tmp_path / "index"), str(out)])
    opened, collection = open_index(tmp_path / "index"), Collection.open(toy_collection)
    assert isinstance(opened, DenseIndex)
    width, stored = opened.vectors.width, np.float32 if dtype == "float32" else np.float16
    name = {np.float32: "float", np.float16: "halffloat"}[stored]
    assert capsys.readouterr().out == f"{out}: 120 vectors of {width} x {name}, with their ids\n"
    file = parquet.ParquetFile(out)
    assert file.metadata.num_row_groups == 3
    table = file.read()
    assert str(table.schema.field("vector").type) == f"fixed_size_list<element: {name}>[{width}]"
    assert table["id"].to_pylist() == list(collection.corpus.ids)
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False))
    assert vectors.dtype == stored
    assert np.array_equal(vectors, opened.vectors[opened.documents.rows])

    faiss = pytest.importorskip("faiss")
    flat = faiss.IndexFlatIP(width)
    flat.add(vectors.astype(np.float32))
    queries = opened.ranker.queries.embeddings(map(collection.queries.tokens, range(8)))
    scores, _ = flat.search(queries, 10)
    exact = opened.search_vectors(queries, 10)
    assert np.allclose(scores[:, 0], [ranked.scores[0] for ranked in exact], atol=1e-2)


def test_other_indexes_make_no_table(
    toy_collection: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index(["bm25", "--collection", str(toy_collection), "--out", str(tmp_path / "bm25")])
    out = tmp_path / "out.parquet"
    assert "an index of kind bm25: only one vector per text makes a table" in refused(main, tmp_path / "bm25", out)
    assert "not an index" in refused(main, tmp_path, out)
    assert "--push: is for a model" in refused(main, tmp_path / "bm25", out, "--push", "owner/name")
    assert not out.exists()


PAGE = (toy.ROOT / "docs" / "serve.md").read_text()
COMMANDS = re.findall(r"^    python -m trainer\.(\w+) (.*)$", PAGE, re.MULTILINE)
ENCODE, SEARCH = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_a_run_is_served(toy_collection: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs the packages of the extra `faiss`")
    monkeypatch.chdir(tmp_path)
    keys = {"name": "siamese", "similarity": "cosine", "pooling": "mean"}
    write_run(Path("runs/mine"), toy_collection / "tokenizer.json", max_query_tokens=24, max_document_tokens=24, **keys)
    Path("data").mkdir()
    Path("data/mine").symlink_to(toy_collection)
    assert [command for command, _ in COMMANDS] == ["export", "index", "export", "export"]
    for command, arguments in COMMANDS:
        importlib.import_module(f"deepsiam.trainer.{command}").main(shlex.split(arguments))
    (pushed,) = hub.repositories["models", "OWNER/NAME"]
    assert pushed["model.safetensors"] == Path("exported/mine/model.safetensors").read_bytes()
    variables: dict[str, Any] = {}
    exec(ENCODE, variables)
    assert variables["scores"].shape == (1, 2)
    exec(SEARCH, variables)
    index = open_index("indexes/mine")
    assert variables["found"] == [[hit.id for hit in hits] for hits in index.search(["a query"], 3)]
    np.testing.assert_allclose(np.linalg.norm(variables["vectors"], axis=1), 1, atol=1e-5)
