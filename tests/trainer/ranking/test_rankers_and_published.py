"""Models that rank: precision and prompts; a published one ranks like its run, teaches, classifies and starts one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.packing import frame, pad
from deepsiam.models.pretraining.cross_thought import CrossThought
from deepsiam.trainer import evaluate, index, mine
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.system import Embedded, Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.interop.test_cross_encoder import IDENTITY, PAIRS, edit, own_scores, write_folder
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}


@pytest.mark.parametrize("name", ["siamese", "colbert", "poly_encoder", "cross_encoder", "duobert"])
def test_models_score_in_bf16_as_in_fp32_but_for_rounding(opened: Collection, tmp_path: Path, name: str) -> None:
    own = {"cross_encoder": {"hard_negatives": 1}, "duobert": {"hard_negatives": 1}, "poly_encoder": {"m": 4}}
    keys = LENGTHS | own.get(name, {})
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name=name, **keys)
    usual, half = (ranker_of(load_trained(run), opened, precision) for precision in (None, "bf16"))
    assert (usual.precision, half.precision) == ("fp32", "bf16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert half.identity == usual.identity
    lists = [(0, list(range(12))), (1, list(range(6, 18)))]
    scores = [np.concatenate(ranker.scores(lists)) for ranker in (usual, half)]
    assert all(of_ranker.dtype == np.float32 for of_ranker in scores)
    assert 0 < np.abs(scores[1] - scores[0]).max() < 0.05 * np.abs(scores[0]).max()
    if name == "siamese":
        DenseIndex.build(half, tmp_path / "index")
        with pytest.raises(InputError, match="holds an index with another --precision: name another"):
            DenseIndex.build(usual, tmp_path / "index")


PROMPTS = {"query_prompt": "abc de: ", "document_prompt": "fgh"}


@pytest.mark.parametrize("name", ["siamese", "colbert", "sparse"])
def test_other_prompts_rank_as_the_models_own(opened: Collection, tmp_path: Path, name: str) -> None:
    def ranker(folder: str, **prompts: str) -> VectorRanker:
        keys = {"name": name, **LENGTHS, **prompts}
        run = write_run(tmp_path / folder, opened.directory / "tokenizer.json", seed=3, **keys)
        made = ranker_of(load_trained(run), opened)
        assert isinstance(made, VectorRanker)
        return made

    without, own = ranker("without"), ranker("own", **PROMPTS)
    other = without.with_options(PROMPTS)
    lists = [(0, list(range(40))), (1, list(range(20, 60)))]
    plain, expected, scores = (np.concatenate(one.scores(lists)) for one in (without, own, other))
    np.testing.assert_array_equal(scores, expected)
    assert not np.array_equal(scores, plain)
    assert other.identity.items() >= PROMPTS.items()
    assert other.identity["fingerprint"] != without.identity["fingerprint"]
    assert own.with_options(PROMPTS) is own
    assert without.with_options({"query_prompt": ""}) is without
    removed = own.with_options(dict.fromkeys(PROMPTS, ""))
    np.testing.assert_array_equal(np.concatenate(removed.scores(lists)), plain)
    assert not removed.identity.keys() & PROMPTS.keys()
    for options, words in (
        ({"document_prompt": "abc de " * 30}, "document_prompt has .* tokens, which leave a text no room"),
        ({"prompt": "abc"}, "'prompt' is not an option of .*: query_prompt, document_prompt"),
    ):
        with pytest.raises(ValueError, match=words):
            without.with_options(options)


def test_an_index_keeps_its_prompts_and_dimensions(
    opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name="siamese", **LENGTHS)
    options = [f"--{name.replace('_', '-')}={text}" for name, text in PROMPTS.items()]
    arguments = [str(run), f"--collection={opened.directory}", f"--out={tmp_path / 'index'}", *options]
    index.main([*arguments, "--dimensions=9"])
    note, line = capsys.readouterr().out.splitlines()
    assert "not for its first 9" in note
    assert "different texts, 9 x float32 each" in line
    found, ranker = open_index(tmp_path / "index"), ranker_of(load_trained(run), opened).with_options(PROMPTS).cut(9)
    texts = Texts(opened, [0, 1, 2], list(range(len(opened.corpus))))
    words = [opened.queries.text(i) for i in texts.queries]
    for ranked, other in zip(found.search_share(words, 10), ranker.system(texts).rank(10), strict=True):
        assert ranked.documents.tolist() == other.documents.tolist()
        np.testing.assert_allclose(ranked.scores, other.scores, atol=1e-6)
    for number in ("--dimensions=8", "--dimensions=32"):
        assert "another --dimensions: name another folder" in refused(index.main, *arguments, number)


def test_a_cross_thought_run_ranks_by_its_embeddings_without_fine_tuning(toy_collection: Path, tmp_path: Path) -> None:
    keys = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
    trained = load_trained(write_run(tmp_path / "run", toy_collection / "tokenizer.json", **keys))
    task = Task.of(Collection.open(toy_collection), "test")
    embedded = ranker_of(load_any(tmp_path / "run"), task.collection).system(task)
    assert isinstance(embedded, Embedded)
    assert isinstance(trained.model, CrossThought)
    longest = trained.text_tokens
    for vectors, texts, numbers in (
        (embedded.queries, task.collection.queries, task.queries),
        (embedded.documents, task.collection.corpus, task.pool),
    ):
        rows, mask = pad([frame(texts.tokens(i), trained.tokenizer, longest) for i in numbers], longest, 0)
        with torch.no_grad():
            own = trained.model.embed_documents(torch.from_numpy(rows).long(), torch.from_numpy(mask)).vectors[:, 0]
        np.testing.assert_allclose(vectors, own.numpy(), atol=1e-5)


def test_a_folder_is_evaluated_beside_its_run(toy_collection: Path, tmp_path: Path) -> None:
    method = {"name": "siamese", "similarity": "cosine", "pooling": "mean", "temperature": 0.1, **LENGTHS}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **method)
    published = tmp_path / "published"
    export_encoder(load_trained(run), published)
    models = [f"--system=run={run}", f"--system=folder={published}"]
    systems = evaluated(toy_collection, tmp_path / "r.json", *models)["systems"]
    assert systems["folder"]["metrics"] == systems["run"]["metrics"]
    (stage,) = systems["folder"]["stages"]
    assert stage["checkpoint"] == str(published)
    assert stage["max_tokens"] == {"query": 16, "document": 24}
    (published / "sentence_bert_config.json").unlink()
    for file, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        for tokens in ("many", 2, [1], True, 16.5, float("nan")):
            (published / file).write_text(json.dumps({key: tokens}))
            with pytest.raises(InputError, match=f"{file}: {key} is .* not a number of tokens"):
                load_any(published)
        (published / file).unlink()


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("sentence_transformers")


def evaluated(collection: Path, out: Path, *options: str) -> Any:
    evaluate.main(["--collection", str(collection), "--split", "test", "--out", str(out), *options])
    return json.loads(out.read_text())


def scored(collection: Path, teacher: Path, out: Path) -> Collection:
    mine.main(["--collection", str(collection), "--split", "train", "--score", str(teacher), "--out", str(out)])
    return Collection.open(out)


def test_an_export_ranks_and_teaches_like_its_run(toy_collection: Path, tmp_path: Path) -> None:
    lengths = {"max_query_tokens": 80, "max_document_tokens": 200}  # no text is longer
    trunk = {**toy.TRUNK, "max_position_embeddings": 290}
    tokenizer_json = toy_collection / "tokenizer.json"
    run = write_run(tmp_path / "run", tokenizer_json, trunk=trunk, name="cross_encoder", loss="binary", **lengths)
    export = tmp_path / "export"
    export_encoder(load_trained(run), export)
    systems = ["--system=bm25", f"--system=run=bm25 > 3 {run}", f"--system=export=bm25 > 3 {export}"]
    results = evaluated(toy_collection, tmp_path / "r.json", *systems)["systems"]
    assert results["export"]["metrics"] == results["run"]["metrics"] != results["bm25"]["metrics"]
    labels = [
        np.asarray(scored(toy_collection, path, tmp_path / f"by-{path.name}").groups("train").scores)
        for path in (run, export)
    ]
    np.testing.assert_allclose(labels[0], labels[1], atol=1e-5)
    assert np.ptp(labels[0]) > 0.01


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_a_fine_tuning_starts_with_its_scores(
    toy_collection: Path, tmp_path: Path, library: Any, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = write_folder(tmp_path / "folder", toy_collection / "tokenizer.json", kind)
    edit(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
    job = finetuning.build(recipe(folder, toy_collection, max_query_tokens=30, max_document_tokens=30))
    heads = 6 if kind == "modernbert" else 4
    assert f"the encoder, and {heads} of the {heads} head weights" in capsys.readouterr().out
    started = LoadedModel(job.model.eval(), job.recipe.method, load_any(folder).tokenizer, folder)
    theirs = library.CrossEncoder(str(folder), device="cpu", local_files_only=True).predict(PAIRS)
    np.testing.assert_allclose(own_scores(started), theirs, atol=1e-5)


def recipe(folder: Path, collection: Path, **method: Any) -> FinetuneRecipe:
    method = {"name": "cross_encoder", "negatives_per_query": 1, **LENGTHS, **method}
    values = toy.finetune_values(folder / "run", collection, init_from=str(folder), method=method)
    return build(FinetuneRecipe, values, "test")


def test_the_recipe_comes_first(toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "folder", toy_collection / "tokenizer.json", "electra")
    method: Any = finetuning.build(recipe(folder, toy_collection)).recipe.method
    assert (method.hidden_activation, method.token_types, method.max_pair_tokens) == ("gelu", True, 30)
    method = finetuning.build(recipe(folder, toy_collection, hidden_layer=False, separators=2)).recipe.method
    assert (method.hidden_activation, method.separators, method.max_pair_tokens) == ("tanh", 2, 30)
    job = finetuning.build(recipe(folder, toy_collection, name="siamese", negatives_per_query=0))
    assert job.model.heads == {}  # the encoder alone
    classes = write_folder(tmp_path / "classes", toy_collection / "tokenizer.json", "bert", num_labels=2)
    finetuning.build(recipe(classes, toy_collection))
    assert "the encoder, and 2 of the 4 head weights" in capsys.readouterr().out  # what fits


CLASSES = ("contradiction", "Neutral", "entailment")  # another order than the data's


def test_classes_go_by_names(toy_classes: Path, tmp_path: Path, library: Any, refused: Callable[..., str]) -> None:
    names = dict(enumerate(CLASSES))
    tokenizer_json = toy_classes / "tokenizer.json"
    folder = write_folder(tmp_path / "folder", tokenizer_json, "bert", num_labels=3, id2label=names, label2id={})
    made = Collection.open(toy_classes)
    groups = made.groups("train")
    every = [groups[i] for i in range(len(groups))]
    pairs = [(made.queries.text(group.query), made.corpus.text(group.candidates[0])) for group in every]
    logits = library.CrossEncoder(str(folder), device="cpu", local_files_only=True).predict(pairs)
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "classifier.bias": weights["classifier.bias"] - logits.mean(0)}, folder / "model.safetensors")
    theirs = (logits - logits.mean(0)).argmax(axis=1)  # each class for some pairs
    results = tmp_path / "r.json"
    options = ["--collection", str(toy_classes), "--split", "train", "--classes", "--out", str(results)]
    evaluate.main([*options, f"--system=ce={folder}"])
    right = [
        CLASSES[number].casefold() == made.classes[int(label)]
        for number, label in zip(theirs, np.asarray(groups.labels), strict=True)
    ]
    assert json.loads(results.read_text())["systems"]["ce"]["metrics"]["accuracy"] == pytest.approx(np.mean(right))
    assert len(set(theirs.tolist())) == 3
    edit(folder / "config.json", id2label={"0": "x", "1": "y", "2": "z"})
    line = refused(evaluate.main, *options, f"--system=ce={folder}")
    assert "folder/config.json: id2label: predicts x, y, z, " in line
