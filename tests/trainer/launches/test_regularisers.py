"""A regulariser of the whole step on real ranks: the same training for any layout and ZeRO stage; resumed exactly.

Queries weigh their inverse document frequency, which is counted once and saved with what is trained.
"""

from pathlib import Path

import pytest

from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.launches.test_step_negatives import compare
from tests.trainer.many_runs import stage_file, train

pytestmark = pytest.mark.slow  # real processes

STEPS, RAMP = 4, 3
STAGES = (0, 1, 2, 3) if toy.FULL_TESTS else (1, 3)
TERMS = ("softmax", "document_l1", "document_flops")
NO_DROPOUT = ["trunk.hidden_dropout_prob=0", "trunk.attention_probs_dropout_prob=0"]


def recipe_of(folder: Path, collection: Path) -> Path:
    """Four micro-batches of two queries per step; dropout is on; the regularisers rise in the first steps."""
    return toy.finetune_recipe(
        folder / "run.yaml",
        collection,
        steps=STEPS,
        batch={"size": 8, "micro": 2},
        trunk={**toy.TRUNK, "initializer_range": 0.2},
        method={
            "name": "sparse",
            "query": "idf",
            "negatives": "own",
            "negatives_per_query": 1,
            "temperature": 20.0,
            "regularise": {"document": {"l1": 0.01, "flops": 0.05}, "ramp": RAMP},
        },
        # steps change no rate; with a small eps, rounding alone could move a weight by a whole lr
        optimizer={"lr": 3e-3, "eps": 1e-3, "schedule": "constant"},
        checkpoint={"every": STEPS // 2},
    )


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs RANKS-STAGE, and one-lane runs without dropout, by the size of their micro-batches."""
    folder = tmp_path_factory.mktemp("regularisers")
    recipe = recipe_of(folder, toy_collection)
    configs = {stage: stage_file(folder, stage) for stage in STAGES}

    def of_stage(ranks: int, stage: int) -> list[object]:
        return [recipe, f"run={folder}/{ranks}-{stage}", f"deepspeed={configs[stage]}"]

    one_lane = [[recipe, "data.lanes=1", f"run={folder}/{n}", f"batch.micro={n}", *NO_DROPOUT] for n in (8, 4, 2)]
    full = [recipe, "data.lanes=1", f"run={folder}/full", "batch.micro=8", "method.regularise.ramp=0", *NO_DROPOUT]
    train(1, [of_stage(1, 1), *one_lane, full], folder)
    stopped = [[recipe, f"run={folder}/2-same", *of_stage(2, 1)[2:], f"steps={end}"] for end in (STEPS // 2, STEPS)]
    train(2, [*stopped, *(of_stage(2, stage) for stage in STAGES)], folder)
    train(4, [of_stage(4, 1)], folder)
    return folder


@pytest.mark.parametrize(
    ("name", "expected"), [*((f"2-{s}", "1-1") for s in STAGES), ("4-1", "1-1"), ("4", "8"), ("2", "8")]
)
def test_any_layout_trains_the_same_model(runs: Path, name: str, expected: str) -> None:
    for term in TERMS:
        losses = toy.scalars(runs / expected, f"loss/{term}")
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert toy.scalars(runs / name, f"loss/{term}") == pytest.approx(losses, rel=1e-4)
    compare(runs / name, runs / expected, 1e-5)


def test_the_weights_of_the_regularisers_rise(runs: Path) -> None:
    risen, full = (toy.scalars(runs / name, "loss/document_flops") for name in ("8", "full"))
    assert risen[1] == full[1]  # before the first update
    assert all(risen[step] > full[step] for step in range(2, STEPS + 1))


def test_stopped_in_the_ramp_it_resumes_exactly(runs: Path) -> None:
    assert STEPS // 2 < RAMP
    one, other = (checkpoint.folder(runs / name, STEPS) / checkpoint.WEIGHTS for name in ("2-1", "2-same"))
    assert one.read_bytes() == other.read_bytes()
