"""The probe of fine-tuning: its sample, the numbers of `trainer.evaluate`; runs with it train as without."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import evaluate
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.while_training.sample import relevant_places, sample
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PairProbeConfig
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.many_runs import train
from tests.trainer.runs import save_run

PROBE = {"split": "test", "every": 3}
KEYS = {"siamese": {"similarity": "cosine"}, "cross_encoder": {"negatives_per_query": 1}}


def job_of(
    folder: Path,
    collection: Path,
    *,
    probe: dict[str, Any] | None,
    name: str = "siamese",
    best: str | None = None,
    stop_after: int | None = None,
    **changes: Any,
) -> Job:
    """A job whose model gives different texts different vectors."""
    method = {"name": name, **KEYS.get(name, {}), **changes.pop("method", {})}
    values = toy.finetune_values(folder, collection, trunk=toy.TRUNK, probe=probe, method=method, **changes)
    values["checkpoint"] = {"keep_best": best, "stop_after": stop_after}
    job = finetuning.build(build(FinetuneRecipe, values, "test"))
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return job


def measured(job: Job) -> dict[str, float]:
    """What the job's probe measures on one rank, without DeepSpeed."""
    engine = Engine.__new__(Engine)
    engine.model, engine.world, engine.deepspeed = job.model, World(0, 1, 0, 1), Mock()
    engine.deepspeed.eval, engine.deepspeed.train = job.model.eval, job.model.train
    engine.gather = lambda value: [value]  # type: ignore[method-assign]
    assert job.probe is not None
    beats: list[int] = []
    figures = job.probe.measure(engine, [], lambda: beats.append(1))
    assert beats
    assert job.model.training
    assert not any(parameter.is_inference() for parameter in job.model.parameters())
    return figures


def evaluated(run: Path, collection: Path, options: str = "") -> dict[str, float]:
    """What `trainer.evaluate` prints of a run for the split `test`."""
    out = run.with_suffix(".json")
    evaluate.main([f"--collection={collection}", "--split=test", f"--system=x={run}{options}", f"--out={out}"])
    means: dict[str, float] = json.loads(out.read_text())["systems"]["x"]["metrics"]
    return means


def check(job: Job, collection: Path, options: str = "") -> None:
    """Expect the probe to measure what `trainer.evaluate` does with the job's model."""
    figures = measured(job)
    assert figures == evaluated(save_run(job.recipe.run, job), collection, options)
    assert 0 < figures["ndcg@10"] < 1


@pytest.mark.parametrize("name", ["siamese", "colbert", "sparse"])
def test_on_a_whole_pool_the_numbers_are_those_of_evaluate(toy_collection: Path, tmp_path: Path, name: str) -> None:
    job = job_of(tmp_path / "run", toy_collection, probe={**PROBE, "documents": 1000}, name=name)
    check(job, toy_collection)


OWN = {"query_prompt": "abc de", "document_prompt": "cab "}


@pytest.mark.parametrize(
    ("of_sources", "options"),
    [
        ([OWN, {}], '(query_prompt="abc de", document_prompt="cab ")'),
        ([{"document_prompt": ""}, OWN], '(document_prompt="")'),
        ([OWN, {}, OWN], '(query_prompt="abc de", document_prompt="cab ")'),
        ([OWN, {}, {}], ""),  # two sources of it that do not agree
        ([None, OWN], ""),  # it is no source
    ],
)
def test_in_a_mix_they_are_those_with_the_prompts_of_the_collections_source(
    toy_collection: Path, toy_scored: Path, tmp_path: Path, of_sources: list[dict[str, str] | None], options: str
) -> None:
    folders = [toy_collection, toy_scored, toy_collection / ".." / toy_collection.name]
    mix = {
        f"source {i}": {"collection": str(folders[i] if keys is not None else toy_scored), "weight": 1, **(keys or {})}
        for i, keys in enumerate(of_sources)
    }
    data = {"mix": mix, "lanes": 4, "window": 2}
    probe = {**PROBE, "documents": 1000, "collection": str(toy_collection)}
    method = {"query_prompt": "e e", "document_prompt": "d d "}
    job = job_of(tmp_path / "run", toy_collection, probe=probe, data=data, method=method)
    check(job, toy_collection, options)


def test_on_a_sample_they_are_those_of_a_collection_of_the_same_texts(toy_collection: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path / "run", toy_collection, probe={**PROBE, "queries": 7, "documents": 40})
    whole, task = Collection.open(toy_collection), job.probe.task  # type: ignore[union-attr]
    assert (len(task.queries), len(task.pool)) == (7, 40)
    corpus = {whole.corpus.ids[i]: whole.corpus.text(i) for i in sorted(task.pool)}
    queries = {whole.queries.ids[i]: whole.queries.text(i) for i in task.queries}
    rows = "".join(f"{query}\t{i}\t{grade}\n" for query, of in task.qrels.items() for i, grade in of.items())
    part = toy.write_beir(tmp_path / "part", corpus, queries, test=rows)
    build_collection("beir", [part], part, tokenizers.load(toy_collection / "tokenizer.json"))
    check(job, part)


def scored(folder: Path, collection: Path, **keys: Any) -> Task:
    """A sample of a split with four named negatives for each query."""
    opened = Collection.open(toy.write_scored(folder, collection))
    return sample(opened, PairProbeConfig(split="train", every=1, **keys))


def test_the_pool_is_of_relevant_named_and_random_documents(toy_collection: Path, tmp_path: Path) -> None:
    task = scored(tmp_path / "scored", toy_collection, queries=10, documents=50)
    assert (len(task.queries), len(set(task.pool))) == (10, 50)
    relevant = {task.pool[place] for places in relevant_places(task) for place in places}
    assert len(relevant) == 10
    names = task.collection.corpus.ids
    named = [names.find([name for name, grade in of.items() if grade <= 0]).tolist() for of in task.qrels.values()]
    firsts = {document for of_query in named for document in of_query[:2]}
    assert firsts <= set(task.pool)  # 20 of the other 40 places, as many for each query
    assert any(document not in relevant | {i for of in named for i in of} for document in task.pool)

    small = scored(tmp_path / "small", toy_collection, queries=10, documents=3)
    assert len(small.pool) == 10  # all relevant documents, however small
    assert all(relevant_places(small))
    again = scored(tmp_path / "again", toy_collection, queries=10, documents=50)
    assert (again.queries, again.pool) == (task.queries, task.pool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probe": {**PROBE, "split": "dev"}}, "probe.split: .*no split 'dev'; choose one of: test, train"),
        ({"probe": PROBE, "name": "cross_encoder"}, "probe: a cross_encoder re-ranks, and cannot search a pool"),
        ({"probe": {**PROBE, "collection": "none"}}, "none: not tokenised, or not a collection"),
        ({"probe": PROBE, "best": "ndgc@10"}, "checkpoint.keep_best: 'ndgc@10' is not a metric: write mrr@K, ndcg@K"),
        ({"probe": None, "best": "ndcg@10"}, "checkpoint.keep_best: the probe measures it: name its split in probe"),
        ({"probe": PROBE, "stop_after": 3}, "checkpoint.stop_after: name the metric that is to gain in"),
        ({"probe": PROBE, "best": "ndcg@10", "stop_after": 0}, "checkpoint.stop_after: "),
    ],
)
def test_other_probes_are_refused(toy_collection: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        job_of(tmp_path / "run", toy_collection, **changes)


def test_a_pool_without_a_relevant_document_is_refused(toy_collection: Path, tmp_path: Path) -> None:
    texts = {f"t{i}": " ".join(sentences) for i, sentences in enumerate(toy.documents(8, seed=2))}
    folder = toy.write_beir(tmp_path / "c", texts, texts, dev="t1\tt2\t0\nt3\tgone\t1\n")
    build_collection("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))
    with pytest.raises(InputError, match="probe.split: dev of .* has no query with a relevant document in its pool"):
        job_of(tmp_path / "run", toy_collection, probe={"split": "dev", "every": 1, "collection": str(folder)})


RUNS = [("finetune", "cpu"), ("pretrain", "zero3_bf16")]  # in this order: see `many_runs.in_stage_3`
if toy.FULL_TESTS:
    RUNS = [(kind, config) for config in ("cpu", "zero3_bf16") for kind in ("finetune", "pretrain")]


@pytest.fixture(scope="module")
def runs(shards: Path, toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs KIND-CONFIG-NAME with dropout: on two ranks `probed` and `plain`, without a probe; `one` on one rank."""
    folder, two = tmp_path_factory.mktemp("runs"), list[list[object]]()
    pretraining = {"collection": str(toy_collection), "split": "train", "every": 3, "max_tokens": 16}
    for kind, config in RUNS:
        changes = {"deepspeed": config, "trunk": toy.TRUNK}
        for name in ("plain", "probed"):
            path = folder / f"{kind}-{config}-{name}.yaml"
            if kind == "finetune":
                probe = {"probe": {**PROBE, "documents": 999}} if name == "probed" else {}
                toy.finetune_recipe(path, toy_collection, steps=4, **changes, **probe)
            else:
                probe = {"probe": {**pretraining, "queries": 4, "documents": 40}} if name == "probed" else {}
                toy.seed_recipe(path, shards, steps=5, **changes, **probe)
            two.append([path])
    printed = train(2, two, folder)
    assert printed.count("step 3  probe  mrr@10 ") == len(RUNS)
    train(1, [[recipe, f"run={folder / recipe.stem.replace('probed', 'one')}"] for (recipe,) in two[1::2]], folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "config"), RUNS)
def test_a_run_trains_as_without_its_probe(runs: Path, toy_collection: Path, kind: str, config: str) -> None:
    probed, plain, one = (runs / f"{kind}-{config}-{name}" for name in ("probed", "plain", "one"))
    for term in ("softmax",) if kind == "finetune" else ("mlm", "decoder"):
        assert toy.scalars(probed, f"loss/{term}") == toy.scalars(plain, f"loss/{term}")
    if kind == "pretrain":
        for tag in ("alignment", "uniformity", "effective_rank", "bottleneck/decoder"):  # no rank, which can jump
            figures = toy.scalars(probed, f"probe/{tag}")
            assert [*figures] == [0, 3]
            precise = pytest.approx(figures, abs=2e-2 if config == "zero3_bf16" else 1e-4)
            assert {step: toy.scalars(one, f"probe/{tag}")[step] for step in figures} == precise
        return
    for tag in ("ndcg@10", "recall@100"):
        alone, figures = (toy.scalars(run, f"probe/{tag}") for run in (one, probed))
        assert [*alone] == [*figures] == [0, 3, 4]
        assert alone[0] == figures[0]
        if config == "cpu":
            assert alone == pytest.approx(figures, abs=0.05)  # a rounded score may move a document by a rank
            expected = evaluated(probed, toy_collection)
            assert figures[4] == pytest.approx(expected[tag], abs=1e-7)  # TensorBoard has fp32
