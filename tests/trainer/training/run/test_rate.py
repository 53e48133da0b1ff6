"""The learning rate of a run."""

import pytest

from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.rate import LearningRate
from tests import toy


@pytest.mark.parametrize(("warmup_steps", "said"), [(10, ""), (11, "warmup_steps=11 is more than steps=10: the lear")])
def test_a_warm_up_that_never_ends_is_said(capsys: pytest.CaptureFixture[str], warmup_steps: int, said: str) -> None:
    optimizer = {"lr": 1e-4, "warmup_steps": warmup_steps}
    rate = LearningRate(build(PretrainRecipe, {**toy.SEED_RECIPE, "optimizer": optimizer}, "test"))
    err = capsys.readouterr().err
    assert said in err
    assert bool(err) == bool(said) == (rate.of(9) < 1e-4)
