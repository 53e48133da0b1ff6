"""The predicted speed: one micro-batch is timed, and the run's speed follows from it."""

from pathlib import Path

import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import pretrain
from deepsiam.trainer.cluster.hosts import speed
from deepsiam.trainer.cluster.hosts.speed import Pace, in_days, predicted, time_micro_batch
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.cluster.hosts.finding import only


@pytest.fixture
def job(shards: Path, tmp_path: Path) -> Job:
    """The job of a toy recipe."""
    return pretrain.build(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", shards)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_micro_batch_of_the_run_is_timed(job: Job, dtype: torch.dtype) -> None:
    first = next(job.order.stream(job.order.start(), 0, 1)).micro_batch
    pace = time_micro_batch(job.model, job.order, job.recipe.methods, dtype)
    assert (pace.tokens, pace.examples) == (first.tokens, 4)
    assert pace.seconds > 0
    assert all(parameter.grad is None for parameter in job.model.parameters())


def test_a_slow_device_computes_fewer_examples(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def seconds(_: object, batch: speed.MicroBatch, *__: object) -> float:
        asked.append(len(batch.arrays["input_ids"]))
        return slowness * asked[-1]

    monkeypatch.setattr(speed, "_seconds", seconds)
    for slowness, sizes, examples in ((0.1, [1, 1, 4, 4], 4), (1.0, [1, 1, 2, 2], 2), (100.0, [1], 1)):
        asked.clear()
        pace = time_micro_batch(job.model, job.order, job.recipe.methods, torch.float32)
        assert (asked, pace.examples) == (sizes, examples)
        assert pace.seconds == pytest.approx(4 * slowness)  # for the whole micro-batch


def test_a_micro_batch_that_does_not_fit_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(speed, "_seconds", full)
    with pytest.raises(InputError, match="does not fit"):
        time_micro_batch(job.model, job.order, job.recipe.methods, torch.float32)


def test_tokens_a_second_and_days_follow_from_a_step(job: Job) -> None:
    # 2 micro-batches per step: one per rank, 0.5 s each, and 0.25 s for the gradients
    pace = Pace(0.5, 100.0, 4, "a GPU")
    finding = only(predicted(job.recipe, pace, 2, 0.25))
    assert finding.state == "ok"
    assert finding.said == (
        "predicted: 267 tokens/s, 6 seconds to step 8; a step takes 0.75 s, 33% of it for the gradients; timed on a GPU"
    )
    assert only(predicted(job.recipe, Pace(0.5, 100.0, 1, "a GPU"), 2, 0.25)).said.endswith(", of 1 of 4 examples")


def test_a_step_that_is_mostly_exchange_is_a_warning(job: Job) -> None:
    pace = Pace(0.5, 100.0, 4, "a GPU")
    assert only(predicted(job.recipe, pace, 2, 0.5)).state == "ok"
    assert only(predicted(job.recipe, pace, 2, 0.6)).state == "warning"


def test_durations_have_the_unit_that_suits() -> None:
    days = [in_days(seconds) for seconds in (12, 90, 5400, 200_000)]
    assert days == ["12 seconds", "1.5 minutes", "1.5 hours", "2.3 days"]
