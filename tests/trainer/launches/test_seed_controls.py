"""The controls of the SEED paper's figure 3 as recipes, and a frozen encoder under ZeRO."""

from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.pretraining.seed import SeedConfig
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy


def frozen_recipe(path: Path, shards: Path, init_from: Path, **changes: object) -> Path:
    """A SEED run with the frozen encoder of the run `init_from`."""
    method = {"name": "seed", "max_tokens": 32, "decoder_layers": 2, "freeze_encoder": True}
    recipe = toy.seed_recipe(path, shards, init_from=str(init_from), method=method, **changes)
    values = yaml.safe_load(recipe.read_text())
    del values["trunk"]
    return toy.write_recipe(path, **values)


def test_a_term_that_trains_nothing_is_left_out() -> None:
    both, decoder = {"mlm": 1.0, "decoder": 1.0}, {"decoder": 1.0}
    for settings, weights in [
        ({}, both),
        ({"cls": False}, both),
        ({"freeze_encoder": True}, decoder),
        ({"loss_weights": {"mlm": 0.0}}, decoder),
        ({"loss_weights": {"decoder": 0.0}}, {"mlm": 1.0, "decoder": 0.0}),
    ]:
        method = SeedConfig.model_validate({"name": "seed", **settings})
        assert method.weights == weights
        assert method.mlm == ("mlm" in weights)


def test_an_untrained_encoder_must_not_be_frozen(tmp_path: Path) -> None:
    method = {"name": "seed", "freeze_encoder": True}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", tmp_path, method=method)
    with pytest.raises(InputError, match="method.freeze_encoder: .* name a trained one in init_from"):
        load(PretrainRecipe, recipe)
    load(PretrainRecipe, recipe, ["init_from=somewhere", "trunk=null"])


@pytest.mark.slow  # starts real processes
def test_a_frozen_encoder_stays_as_it_was_with_and_without_zero(shards: Path, tmp_path: Path) -> None:
    mlm = toy.seed_recipe(tmp_path / "mlm.yaml", shards, steps=2, method={"name": "mlm", "max_tokens": 32})
    assert toy.launch(1, "trainer.pretrain", mlm).returncode == 0
    encoder = load_file(tmp_path / "mlm" / "checkpoints" / "step-00000002" / "weights.safetensors")
    losses = {}
    for config in ("cpu", "zero3_bf16"):
        recipe = frozen_recipe(tmp_path / f"{config}.yaml", shards, tmp_path / "mlm", steps=4, deepspeed=config)
        done = toy.launch(2, "trainer.pretrain", recipe)
        assert done.returncode == 0, done.stderr
        weights = load_file(tmp_path / config / "checkpoints" / "step-00000004" / "weights.safetensors")
        precision = torch.float32 if config == "cpu" else torch.bfloat16  # as in training; the file stores fp32
        for name, tensor in encoder.items():
            if name.startswith("trunk."):
                assert torch.equal(weights[name], tensor.to(precision).float()), name
        assert {name.split(".")[0] for name in weights} == {"trunk", "decoder"}
        losses[config] = list(toy.scalars(tmp_path / config, "loss/decoder").values())
    assert losses["zero3_bf16"] == pytest.approx(losses["cpu"], rel=1e-3)
