"""The small examples, compared with plain references, and the keys of a recipe that name them."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.layers.ranking_losses import candidates_losses
from deepsiam.registry import import_named
from deepsiam.trainer.ranking.evaluation.metrics import measure, more_metrics
from deepsiam.trainer.training.engine.optimizer import build_optimizer
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, OptimizerConfig, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from tests import toy
from tests.own_code import EXAMPLES, own_code


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    with own_code(EXAMPLES):
        for name in ("bag_of_words", "two_way", "pairwise", "radam", "success"):
            import_named(f"deepsiam_examples.{name}", "the test")
        yield


def test_the_loss_is_the_mean_over_negatives() -> None:
    scores, mask = torch.tensor([[2.0, 1.0, 3.0], [0.5, 0.0, 9.0]]), torch.tensor([[True] * 3, [True, True, False]])
    expected = (np.log1p(np.exp(-1)) + np.log1p(np.exp(1))) / 2 + np.log1p(np.exp(-0.5))
    losses = candidates_losses(["pairwise"], scores, mask, {})
    assert losses["pairwise"].item() == pytest.approx(expected)


def test_the_optimizer_is_torchs_and_its_states_have_adamws_names() -> None:
    keys = OptimizerConfig(name="radam", lr=0.1, weight_decay=0.2)  # type: ignore[arg-type]
    ours, theirs = nn.Linear(2, 2), nn.Linear(2, 2)
    theirs.load_state_dict(ours.state_dict())
    optimizer = build_optimizer(ours, keys)
    groups = [{"params": [theirs.weight], "weight_decay": 0.2}, {"params": [theirs.bias], "weight_decay": 0.0}]
    reference = torch.optim.RAdam(groups, lr=0.1, eps=1e-6, decoupled_weight_decay=True)
    for _ in range(8):
        for model, stepped in ((ours, optimizer), (theirs, reference)):
            stepped.zero_grad()
            model(torch.ones(1, 2)).square().sum().backward()
            stepped.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    assert {*optimizer.state[ours.weight]} == {"step", "exp_avg", "exp_avg_sq"}


def test_the_metric_is_the_share_of_queries_with_a_relevant_document() -> None:
    assert more_metrics(["success@2"], "--metrics") == ("success@2",)
    qrels = {"found": {"a": 1}, "late": {"a": 2}, "wrong": {"a": 0, "b": -1, "c": 1}, "missing": {"a": 1}, "none": {}}
    ranked = {"found": ["x", "a"], "late": ["x", "y", "a"], "wrong": ["a", "b"], "none": ["a"]}
    values = measure(qrels, ranked, ["success@2", "success@3"]).values
    assert values["success@2"].tolist() == [1, 0, 0, 0, 0]
    assert values["success@3"].tolist() == [1, 1, 0, 0, 0]


def test_an_unknown_metric_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InputError, match="^here: 'sucess@2' is not a metric: write .*map@K, success@K, with K"):
        more_metrics(["sucess@2"], "here")


BAG = {"name": "bag_of_words"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {**BAG, "max_token": 9}}, "method.max_token: unknown key; did you"),
        ({"method": {**BAG, "max_tokens": "x"}}, "method.max_tokens: input should be"),
        ({"method": {"name": "bag_of_word"}}, "not 'bag_of_word'; did you mean bag_of_words?"),
        ({"method": {"name": "two_way"}}, "not 'two_way': train it by trainer.finetune"),
        ({"optimizer": {"lr": 1, "name": "radan"}}, "optimizer.name: input should be 'adamw' or 'adam"),
        ({"imports": "my_module"}, "imports: input should be a valid "),
        ({"imports": ["my-module"]}, "imports: string should match pattern"),
        ({"method": {"name": "siamese", "loss": "pairwise"}}, "loss=pairwise needs a query's own neg"),
        ({"method": {"name": "siamese", "loss": "rank_net"}}, "method.loss: input should be 'softmax'"),
    ],
)
def test_errors_keep_their_place(changes: dict[str, Any], message: str) -> None:
    kind: type[Recipe] = PretrainRecipe
    values = toy.SEED_RECIPE
    if changes.get("method", {}).get("name") == "siamese":
        kind, values = FinetuneRecipe, toy.finetune_values(Path("run"), Path("c"), init_from="x")
    with pytest.raises(InputError) as refused:
        build(kind, {**values, **changes}, "recipe.yaml")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_loss_of_one_s_own_is_named_alone_or_in_a_table_and_saved() -> None:
    for loss in ("pairwise", {"pairwise": 1.0, "softmax": 0.5}):
        method = {"name": "siamese", "loss": loss, "hard_negatives": 1}
        recipe = build(
            FinetuneRecipe, toy.finetune_values(Path("r"), Path("c"), method=method, init_from="x"), "r.yaml"
        )
        assert recipe.method.loss == loss
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recipe.model_dump(mode="json")["method"]["loss"] == loss


def test_a_recipe_imports_what_it_names(tmp_path: Path) -> None:
    file = toy.write_recipe(tmp_path / "a.yaml", **{**toy.SEED_RECIPE, "imports": ["no_such_module"]})
    with pytest.raises(InputError, match=f"^{file}: imports: Python finds no module no_such_module: install"):
        load(PretrainRecipe, file)
    assert load(PretrainRecipe, file, ["imports=[deepsiam_examples.faq]"]).imports == ("deepsiam_examples.faq",)
    assert build(PretrainRecipe, {**toy.SEED_RECIPE, "imports": ["no_such_module"]}, "as a checkpoint's").imports
    assert "imports" not in build(PretrainRecipe, toy.SEED_RECIPE, "x").model_dump()
