"""A mix of collections on real ranks: the same training for any number of them, and after a resume on another one."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.many_runs import stage_file, train
from tests.trainer.mixed_recipe import mixed_recipe

pytestmark = pytest.mark.slow

STEPS, SAVED = 6, 3
KINDS = ("micro_batch", "step")  # what one source is drawn for, and what negatives come from
TERMS = ("softmax", "kl", "margin_mse")


@pytest.fixture(scope="module")
def runs(toy_collection: Path, toy_scored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs KIND-RANKS: on one rank, on two with loader workers, and from there on four; steps at ZeRO stage 3."""
    folder = tmp_path_factory.mktemp("mixes")
    stages = {"micro_batch": stage_file(folder, 1), "step": stage_file(folder, 3)}
    recipes = {
        kind: mixed_recipe(
            *(folder / f"{kind}.yaml", toy_collection, toy_scored),
            per=kind,
            refreshed=kind == "micro_batch",
            steps=STEPS,
        )
        for kind in KINDS
    }

    def commands(ranks: int, *changes: str) -> list[list[object]]:
        named = [(recipes[kind], f"run={folder}/{kind}-{ranks}", f"deepspeed={stages[kind]}") for kind in KINDS]
        return [[*command, *changes] for command in named]

    train(1, commands(1), folder)
    train(2, commands(2, "data.workers=2"), folder)
    for kind in KINDS:
        resumed = folder / f"{kind}-4"
        shutil.copytree(folder / f"{kind}-2", resumed, ignore=shutil.ignore_patterns("tensorboard", "lock"))
        shutil.rmtree(checkpoint.folder(resumed, STEPS))
    train(4, commands(4), folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_any_number_of_ranks_and_a_resume_train_the_same_model(runs: Path, kind: str, ranks: int) -> None:
    alone, other = runs / f"{kind}-1", runs / f"{kind}-{ranks}"
    first = 1 if ranks == 2 else SAVED + 1
    compared = 0
    for term in TERMS:
        expected, seen = toy.scalars(alone, f"loss/{term}"), toy.scalars(other, f"loss/{term}")
        compared += len(seen)
        assert seen == pytest.approx({step: loss for step, loss in expected.items() if step >= first}, rel=1e-5)
    assert compared >= STEPS - first + 1
    weights = load_file(checkpoint.folder(other, STEPS) / checkpoint.WEIGHTS)
    for name, weight in load_file(checkpoint.folder(alone, STEPS) / checkpoint.WEIGHTS).items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=2e-6)
    validation = [toy.scalars(run, "validation/softmax")[STEPS] for run in (alone, other)]
    assert validation[0] == pytest.approx(validation[1], rel=1e-5)


def test_negatives_are_mined_for_the_sources_that_ask(runs: Path) -> None:
    of_runs = [runs / f"micro_batch-{ranks}" for ranks in (1, 2, 4)]
    assert [toy.scalars(run, "negatives/of_a_query/plain").keys() for run in of_runs] == [{SAVED}] * 3
    assert {folder.name for run in of_runs for folder in (run / "negatives").iterdir()} == {"plain"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_source_has_curves_of_its_own(runs: Path, kind: str) -> None:
    run = runs / f"{kind}-1"
    for source, terms in {"plain": ["softmax"], "prompted": ["softmax"], "taught": ["kl", "margin_mse"]}.items():
        examples = toy.scalars(run, f"examples/{source}")
        steps = [step for step in range(1, STEPS + 1) if examples[step] > examples.get(step - 1, 0)]
        for term in terms:
            assert list(toy.scalars(run, f"loss/{term}/{source}")) == steps
    per_step = [toy.scalars(run, f"examples/{source}") for source in ("plain", "prompted", "taught")]
    assert [sum(of[step] for of in per_step) for step in range(1, STEPS + 1)] == [
        8 * step for step in range(1, STEPS + 1)
    ]
