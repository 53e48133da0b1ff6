"""Mined negatives in a run: against a plain search, and after stops at every stage, kills and changes of the ranks."""

import json
import shutil
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.jobs.trace import digest, trace
from deepsiam.trainer.ranking.indexes.sparse import TermWriter
from deepsiam.trainer.ranking.indexes.writer import OneVector, Writer
from deepsiam.trainer.ranking.mining import mine, mining_texts
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import salts_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.ranking.while_training import refresh as refresh_module
from deepsiam.trainer.ranking.while_training.refresh import Generations, Refresh, open_refresh
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data import generation as generation_module
from deepsiam.trainer.training.data.generation import Generation
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.opened import resume_invariants
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, RefreshConfig
from deepsiam.trainer.training.recipe.yaml_file import build as build_recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.killed import kill, kill_at
from tests.trainer.many_runs import train
from tests.trainer.runs import STEP, write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
SIAMESE = {"name": "siamese", **LENGTHS}
EVERY, STEPS = 4, 10


@pytest.fixture(autouse=True)
def several_blocks_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an index have several blocks, and the queries several parts; there is one rank."""
    for writer in (OneVector, TermWriter):
        monkeypatch.setattr(writer, "BLOCK", 30)
    monkeypatch.setattr(refresh_module, "PART", 25)
    monkeypatch.setattr(refresh_module.dist, "barrier", lambda: None)


def alone(saved: Path, opened: Collection, margin: float | str | None = None, **prompts: str) -> Generations:
    config, run = RefreshConfig(every=STEP, depth=20, margin=margin), saved.parents[1]
    source = GroupSource(opened, "train", "positive", None, 1, unit=8)
    return Generations(config, source, prompts, run, run / "negatives", World(0, 1, 0, 1))


def arrays(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.npy")}


def plain(saved: Path, opened: Collection, margin: float | str | None, **prompts: str) -> dict[int, list[int]]:
    """The negatives found by a single search in memory, sorted."""
    found = mining_texts(opened, "train")
    texts = Texts(opened, found.queries, sorted(found.pool))
    ranker = ranker_of(load_trained(saved), texts.collection).with_options(prompts)
    ranked = ranker.system(texts).rank(20, salts_of(texts.queries))
    mined = mine(texts, Relevant.of_groups(opened, opened.groups("train")), ranked, margin)
    return {query: sorted(of_query.documents.tolist()) for query, of_query in mined.negatives.items()}


def recipe_values(collection: Path, run: Path) -> dict[str, Any]:
    """A recipe that mines after four steps and after eight."""
    method = {"name": "siamese", "negatives": "own", "hard_negatives": 2, **LENGTHS}
    values = toy.finetune_values(run, collection, steps=STEPS, trunk=toy.TRUNK, checkpoint={"every": 3})
    data = {"collection": str(collection), "lanes": 2, "window": 2, "workers": 1}
    return {**values, "data": data, "method": method, "refresh": {"every": EVERY, "depth": 20}}


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"negatives": "micro_batch", "hard_negatives": 0}, "what is mined is drawn as hard negatives"),
        ({"loss": "kl", "hard_negatives": 0}, "what is mined is drawn as hard negatives"),
        (
            {"name": "colbert"},
            "refresh: a colbert cannot mine in the run: only models of one vector, .*; set refresh to",
        ),
    ],
    ids=str,
)
def test_recipes_that_cannot_mine_are_refused(toy_collection: Path, method: dict[str, Any], words: str) -> None:
    values = recipe_values(toy_collection, Path("run"))
    values["method"] |= method
    with pytest.raises(InputError, match=words):
        finetuning.build(build_recipe(FinetuneRecipe, values, "recipe.yaml"))


OWN = {"query_prompt": "abc de", "document_prompt": "abc"}  # prompts of a source


@pytest.mark.parametrize(
    ("method", "margin", "prompts"),
    [(SIAMESE, None, {}), (SIAMESE, 0.05, {}), (SIAMESE, "0.1%", OWN), ({"name": "sparse", **LENGTHS}, None, {})],
    ids=range(4),
)
def test_a_generation_is_a_plain_search_with_its_weights(
    opened: Collection, tmp_path: Path, method: dict[str, Any], margin: float | str | None, prompts: dict[str, str]
) -> None:
    write_run(tmp_path / "run", opened.directory / "tokenizer.json", **method)
    saved = checkpoint.folder(tmp_path / "run", STEP)
    generations, beats = alone(saved, opened, margin, **prompts), list[int]()
    refresh = Refresh(generations.config, {"": generations})
    figures = refresh.make(STEP, saved, lambda: beats.append(1))[""]
    assert beats
    refresh.use(STEP + 2)
    made = generations.source.generation
    assert made is not None
    expected = plain(saved, opened, margin, **prompts)
    assert {query: sorted(made.negatives(query).tolist()) for query in expected} == expected
    assert any(expected.values())
    assert not prompts or expected != plain(saved, opened, margin)
    assert made.negatives(10_000).tolist() == []
    assert figures["new"] == 1  # all are new: the groups have no negatives of their own
    assert figures["of_a_query"] == pytest.approx(np.mean([len(found) for found in expected.values()]))
    assert 0 < figures["above_relevant"] < 1 or margin
    assert sorted(path.name for path in (saved.parents[1] / "negatives").iterdir()) == [f"step-{STEP:08d}"]
    drawn = [example.candidates.tolist() for example in generations.source.read(0, 0)]
    groups = generations.source.groups  # of one relevant document each
    for candidates, number in zip(drawn, generations.source.places(np.arange(8)).tolist(), strict=True):
        relevant, query = int(groups.candidates.flat[number]), int(groups.queries[number])
        assert candidates == [relevant, *made.negatives(query).tolist()]
    refresh.use(STEP - 1)
    assert generations.source.generation is None


@pytest.fixture(scope="module")
def whole(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A run that has reached its refresh step, and the arrays that it mines there."""
    run = write_run(tmp_path_factory.mktemp("whole") / "run", toy_collection / "tokenizer.json", **SIAMESE)
    opened = Collection.open(toy_collection)
    with pytest.MonkeyPatch.context() as patched:
        small(patched)
        alone(checkpoint.folder(run, STEP), opened).make(STEP, checkpoint.folder(run, STEP), lambda: None)
    expected = arrays(run / "negatives" / f"step-{STEP:08d}")
    shutil.rmtree(run / "negatives")
    return run, expected


STOPS: dict[
    str, tuple[object, str, int, int]
] = {  # what stops, after how many calls; the blocks encoded later, of four
    "encode": (Writer, "write_block", 2, 2),
    "search": (refresh_module, "mine", 2, 0),
    "publish": (generation_module, "write", 0, 0),
    "rename": (refresh_module, "whole_folder", 0, 0),
    "tidy": (refresh_module.Generations, "_tidy", 0, 0),
}


@pytest.mark.parametrize("stage", STOPS)
def test_a_refresh_that_is_stopped_goes_on_and_makes_the_same(
    whole: tuple[Path, dict[str, bytes]],
    opened: Collection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    run, expected = shutil.copytree(whole[0], tmp_path / "run"), whole[1]
    saved, final = checkpoint.folder(run, STEP), run / "negatives" / f"step-{STEP:08d}"
    for step in (STEP - 2, STEP - 1):  # as if left by earlier refreshes; no checkpoint needs them
        (final.parent / f"step-{step:08d}").mkdir(parents=True)
    module, name, after, blocks = STOPS[stage]
    calls, original = list[str](), getattr(module, name)

    def stops(*arguments: object, **options: object) -> object:
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(name)
        return original(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, stops)
        with pytest.raises(KeyboardInterrupt):
            alone(saved, opened).make(STEP, saved, lambda: None)
    assert final.is_dir() == (stage == "tidy")
    encoded, write_block = list[int](), Writer.write_block
    monkeypatch.setattr(Writer, "write_block", lambda *a, **o: (encoded.append(1), write_block(*a, **o))[1])
    alone(saved, opened).make(STEP, saved, lambda: None)
    assert len(encoded) == blocks
    assert arrays(final) == expected
    assert [path.name for path in final.parent.iterdir()] == [final.name]


def test_new_weights_redo_it(
    whole: tuple[Path, dict[str, bytes]], opened: Collection, toy_collection: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    work = run / "negatives" / f"step-{STEP:08d}.work"
    (work / "parts").mkdir(parents=True)
    (work / "about.json").write_text('{"step": 7, "weights": "others"}')
    write_run(run, toy_collection / "tokenizer.json", seed=9, **SIAMESE)
    saved = checkpoint.folder(run, STEP)
    alone(saved, opened).make(STEP, saved, lambda: None)
    assert arrays(work.with_suffix("")) != whole[1]
    shutil.rmtree(run / "checkpoints")
    write_run(run, toy_collection / "tokenizer.json", **SIAMESE)
    alone(saved, opened).make(STEP, saved, lambda: None)  # over what is complete, of others
    assert arrays(work.with_suffix("")) == whole[1]


def test_missing_and_damaged_negatives_are_refused(opened: Collection, tmp_path: Path) -> None:
    write_run(tmp_path / "run", opened.directory / "tokenizer.json", **SIAMESE)
    saved = checkpoint.folder(tmp_path / "run", STEP)
    generations = alone(saved, opened)
    refresh = Refresh(generations.config, {"": generations})
    with pytest.raises(SharedError, match=r"step-00000007: is missing, and the negatives of this step are in it"):
        refresh.use(STEP + 1)
    refresh.make(STEP, saved, lambda: None)
    folder = saved.parents[1] / "negatives" / f"step-{STEP:08d}"
    documents, about = np.load(folder / "documents.npy"), json.loads((folder / "about.json").read_text())
    for number in (-1, len(opened.corpus)):
        np.save(folder / "documents.npy", np.where(documents == documents[0], number, documents))
        with pytest.raises(SharedError, match="step-00000007: damaged .a number of no document.: restore it"):
            refresh.use(STEP + 1)
    np.save(folder / "documents.npy", documents)
    for key, value in (("figures", {"new": "all"}), ("step", -7), ("weights", None)):
        (folder / "about.json").write_text(json.dumps({**about, key: value}))
        with pytest.raises(SharedError, match=f"about.json: {key}.*: .*; restore it from a copy"):
            refresh.use(STEP + 1)
    np.save(folder / "queries.npy", np.arange(3))
    with pytest.raises(SharedError, match="damaged"):
        refresh.use(STEP + 1)


def test_a_trace_shows_what_the_run_mined(toy_collection: Path, tmp_path: Path) -> None:
    recipe = build_recipe(FinetuneRecipe, recipe_values(toy_collection, tmp_path / "traced"), "recipe.yaml")

    def digests(first: int, last: int, refreshes: bool) -> list[str]:
        data = pair_data(recipe)
        refresh = open_refresh(recipe, data) if refreshes else None
        steps = trace(recipe, data, first, 2, 1, refresh)
        return [digest([batch.micro_batch for batch in batches]) for _, batches in islice(steps, last - first + 1)]

    made = open_refresh(recipe, pair_data(recipe))
    assert made is not None
    write_run(tmp_path / "run", toy_collection / "tokenizer.json", **SIAMESE)
    saved = checkpoint.folder(tmp_path / "run", STEP)
    checkpoint.folder(recipe.run, EVERY).mkdir(parents=True)
    made.make(EVERY, saved, lambda: None)
    mined, own = digests(1, 2 * EVERY, True), digests(1, 2 * EVERY, False)
    assert [one == other for one, other in zip(mined, own, strict=True)] == EVERY * [True] + EVERY * [False]
    assert digests(EVERY + 2, 2 * EVERY, True) == mined[EVERY + 1 :]
    with pytest.raises(InputError, match=r"step-00000008: is missing, and the negatives of this step are in it"):
        digests(2 * EVERY + 1, 2 * EVERY + 1, True)


@pytest.mark.slow
def test_killed_in_a_refresh_it_resumes_to_the_same_run_on_any_ranks(toy_collection: Path, tmp_path: Path) -> None:
    undisturbed, killed = (
        toy.write_recipe(tmp_path / f"{name}.yaml", **recipe_values(toy_collection, tmp_path / name))
        for name in ("undisturbed", "killed")
    )
    kill_when(tmp_path / "killed" / "negatives" / "step-00000004.work", killed)
    assert checkpoint.newest(tmp_path / "killed") == checkpoint.folder(tmp_path / "killed", EVERY)
    shutil.copytree(tmp_path / "killed", tmp_path / "one", ignore=shutil.ignore_patterns("tensorboard", "lock"))
    kill_at(EVERY + 1, 2, "trainer.finetune", killed, "--resume")
    assert checkpoint.newest(tmp_path / "killed") == checkpoint.folder(tmp_path / "killed", EVERY)
    printed = train(2, [[killed], [undisturbed]], tmp_path)
    lines = [line for line in printed.splitlines() if "  negatives  " in line]
    assert [line.split("  ")[0] for line in lines] == ["step 8", "step 4", "step 8"]  # a refresh is reported once
    assert "100% new" in lines[1]
    folder = tmp_path / "undisturbed" / "negatives"
    assert sorted(file.name for file in folder.iterdir()) == ["step-00000004", "step-00000008"]
    age = toy.scalars(tmp_path / "undisturbed", "negatives/age")
    assert [age[step] for step in range(1, STEPS + 1)] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    for tag in ("new", "minutes"):
        events = EventAccumulator(str(tmp_path / "killed" / "tensorboard"), size_guidance={"scalars": 0}).Reload()
        assert [event.step for event in events.Scalars(f"negatives/{tag}")] == [4, 8]
    train(1, [[killed, f"run={tmp_path}/one"]], tmp_path)
    for name in ("step-00000004", "step-00000008"):
        assert arrays(tmp_path / "killed" / "negatives" / name) == arrays(folder / name)
    assert arrays(tmp_path / "one" / "negatives" / "step-00000004") == arrays(folder / "step-00000004")
    two_ranks, one_rank = (
        Generation.map(tmp_path / name / "negatives" / "step-00000008").pairs() for name in ("undisturbed", "one")
    )
    other = {tuple(pair) for pair in one_rank.tolist()} - {tuple(pair) for pair in two_ranks.tolist()}
    assert len(other) < 0.01 * len(two_ranks)  # the weights of step 8 differ by rounding
    final = Path("checkpoints") / f"step-{STEPS:08}" / checkpoint.WEIGHTS
    assert (tmp_path / "killed" / final).read_bytes() == (tmp_path / "undisturbed" / final).read_bytes()
    losses = [toy.scalars(tmp_path / name, "loss/softmax") for name in ("undisturbed", "killed", "one")]
    assert losses[0] == losses[1]
    later = {step: losses[0][step] for step in range(EVERY + 1, 2 * EVERY + 1)}
    assert {step: losses[2][step] for step in later} == pytest.approx(later, rel=1e-5)


def kill_when(there: Path, recipe: Path) -> None:
    """Start a training on two ranks; send SIGKILL to all its processes as soon as a folder appears."""
    process = toy.start(2, "trainer.finetune", recipe, printed=recipe.with_suffix(".printed"))
    while not there.is_dir():
        assert process.poll() is None, "the run ended"
        time.sleep(0.001)
    kill(process)


def test_a_run_goes_on_with_the_same_refresh_alone(toy_collection: Path, tmp_path: Path) -> None:
    path = toy.write_recipe(tmp_path / "recipe.yaml", **recipe_values(toy_collection, tmp_path / "run"))
    recipe = load(FinetuneRecipe, path)
    assert resume_invariants(recipe, pair_data(recipe))["refresh"] == {"every": 4, "depth": 20, "margin": None}
    recipe = load(FinetuneRecipe, path, ["refresh=null", "method.hard_negatives=0", "method.negatives=micro_batch"])
    assert resume_invariants(recipe, pair_data(recipe))["refresh"] is None  # nor can it be added
