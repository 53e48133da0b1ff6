"""trainer.trace: what a run reads, as digests and as text, is the same on any cluster."""

import re
from pathlib import Path

import numpy as np
import pytest

from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.jobs.trace import digest
from deepsiam.trainer.trace import main
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.runs import save_run, set_invariants, write_run


@pytest.fixture
def recipe(shards: Path, tmp_path: Path) -> Path:
    data = {"mix": {"a": {"shards": str(shards), "weight": 3}, "b": {"shards": str(shards), "weight": 1}}}
    batch = {"size": 32, "micro": 4}
    return toy.seed_recipe(tmp_path / "run.yaml", shards, data={**data, "lanes": 8, "window": 2}, batch=batch)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out.splitlines()


def test_a_step_has_the_same_digest_on_any_cluster(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = printed(capsys, recipe, "--steps", "1:6")
    assert [line.split()[0] for line in alone] == ["1", "2", "3", "4", "5", "6"]
    assert all(re.fullmatch(r"\d [0-9a-f]{32}", line) for line in alone)
    assert len({line.split()[1] for line in alone}) == 6
    for ranks, workers in ((8, 0), (2, 2)):
        there = ["--world-size", ranks, "--workers", workers]
        assert printed(capsys, recipe, "--steps", "1:6", *there) == alone, (ranks, workers)
    assert printed(capsys, recipe, "--steps", "4:5") == alone[3:5]
    assert not set(printed(capsys, recipe, "--steps", "1:6", "seed=2")) & set(alone)


def test_a_step_as_text(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fifth,) = printed(capsys, recipe, "--steps", "5:5")
    lines = printed(capsys, recipe, "--show", "5")
    assert lines[0].split()[2] == fifth.split()[1]
    heads = [line for line in lines if line.startswith("micro-batch")]
    assert [int(re.findall(r"\d+", head)[0]) for head in heads] == list(range(32, 40))
    assert {head.split()[2] for head in heads} == {"a", "b"}
    text = "\n".join(lines)
    assert re.search(r"example 0: shard-\d{6}.tar chunk \d document \d+ \(d\d+\)", text)
    assert "[MASK]" in text
    assert text.count("[CLS]") == 2 * 32  # every example twice: masked and original
    assert "[PAD]" not in text
    originals = lines[lines.index("  original_ids") + 1]  # is the text of the documents that are named
    first = next(line for line in lines if line.startswith("  example 0"))
    documents = toy.documents(600)
    words = {word for number in re.findall(r"\(d(\d+)\)", first) for s in documents[int(number)] for word in s.split()}
    shown = re.sub(r"\[\w+\]| ##", lambda m: "" if m[0] == " ##" else " ", originals.partition(": ")[2])
    assert set(shown.split()) <= words


def test_the_recorded_recipe_of_a_run_is_read(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RUN/recipe.yaml has every key, including `init_from` in a pre-training."""
    values, expected = load(PretrainRecipe, recipe).model_dump(mode="json"), printed(capsys, recipe, "--steps", "1:3")
    for start in ({"init_from": None}, {"init_from": "an encoder", "trunk": None}):
        recorded = toy.write_recipe(recipe.with_name("recorded.yaml"), **values | start)
        assert printed(capsys, recorded, "--steps", "1:3") == expected


def test_a_training_s_own_recipe_is_read_although_its_start_fills_some_of_it_in(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")  # an extra
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    adapters = {"init_from": str(start), "optimizer": {"lr": 1e-3, "train": {"lora": {"rank": 2}}}}
    recipe = toy.finetune_recipe(tmp_path / "run.yaml", toy_collection, **adapters)
    job = finetuning.build(load(FinetuneRecipe, recipe))
    assert job.recipe.optimizer.train != load(FinetuneRecipe, recipe).optimizer.train
    set_invariants(save_run(tmp_path / "run", job), job.resume_invariants)
    capsys.readouterr()  # what the job is made from
    assert printed(capsys, recipe, "--steps", "8:8")[0].startswith("8 ")
    with pytest.raises(SystemExit):
        printed(capsys, recipe, "--steps", "8:8", "seed=2")
    assert "saved with seed=1, the recipe now says 2" in capsys.readouterr().err


def test_the_digest_depends_on_values_and_shapes_but_not_on_the_order() -> None:
    one, two = (MicroBatch({"x": np.arange(6) + i}, {}, 0) for i in range(2))
    assert digest([one, two]) == digest([two, one]) != digest([one, one])
    assert digest([MicroBatch({"x": one.arrays["x"].reshape(2, 3)}, {}, 0)]) != digest([one])


def test_remote_shards_give_the_same_steps_through_a_small_cache(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = sorted(path.stat().st_size for path in shards.glob("*.tar"))
    data = {"lanes": 4, "window": 2}
    local = toy.seed_recipe(tmp_path / "local.yaml", shards, data={"shards": str(shards), **data})
    cache = {"cache": str(tmp_path / "cache"), "cache_bytes": sum(sizes[-9:])}
    far = {"shards": f"file://{shards}", **cache, **data}
    remote = toy.seed_recipe(tmp_path / "remote.yaml", shards, data=far)
    steps = "1:60"  # more than an epoch
    assert printed(capsys, remote, "--steps", steps) == printed(capsys, local, "--steps", steps)
    cached = list((tmp_path / "cache").rglob("*.tar"))
    assert 0 < sum(path.stat().st_size for path in cached) <= cache["cache_bytes"]
    with pytest.raises(SystemExit):
        printed(capsys, remote, "data.cache_bytes=1000")
    assert "data.cache_bytes: 1000 bytes cannot hold the largest shard" in capsys.readouterr().err
