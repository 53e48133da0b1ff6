"""The benchmark of a step: all rivals compute the same losses, and every promised number is measured."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.common.step_cases import rate_of_pass
from benchmarks.step import full_size, on_gpu
from benchmarks.step.methods import agree, ways_of
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.cluster.planning.compute import count
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from tests import toy
from tests.benchmarks.step import tiny_steps

SIZES = {"tokens": 32, "vocab": 100, "hidden": 16, "layers": 3, "batch": 3}  # of a method compared with the plain way


@pytest.mark.parametrize("name", PRETRAINING)
def test_the_plain_way_of_every_method_has_the_same_losses_and_gradients(name: str) -> None:
    model, batch, ways = ways_of(name, SIZES)
    agree(model, batch, ways["plain"])
    gradients = {}
    model.eval()
    for way, forward in ways.items():
        assert rate_of_pass(model, batch, forward, torch.float32) > 0
        gradients[way] = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(gradients["plain"], gradients["deepsiam"], rtol=1e-3, atol=1e-5)
    assert gradients["plain"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """What the tiny benchmark printed, and the file that it wrote."""
    out = tmp_path_factory.mktemp("measured") / "out.json"
    arguments = ["--cases", "seed", "mlm", "--minutes", "60", "--out", str(out)]
    done = toy.run("tests.benchmarks.step.tiny_steps", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), out


def of_steps(printed: list[str]) -> Any:
    (found,) = (json.loads(line) for line in printed if line.startswith('{"losses"'))
    return found


@pytest.mark.slow
def test_all_rivals_train_alike(measured: tuple[list[str], Path]) -> None:
    losses = of_steps(measured[0])["losses"]
    ours = torch.tensor(losses["OurStep"])
    assert ours.shape == (3, 2)  # of the masked words and of the decoder
    for rival in ("Plain", "Bare"):
        torch.testing.assert_close(torch.tensor(losses[rival]), ours, rtol=1e-4, atol=1e-2)


@pytest.mark.slow
def test_rates_ratios_memory_and_parts_are_printed_and_written(measured: tuple[list[str], Path]) -> None:
    printed, out = measured
    results = json.loads(out.read_text())
    assert results["machine"]["versions"].keys() == {"torch", "deepspeed", "transformers"}
    assert results["cases"].keys() == {"seed", "mlm"}
    for name, case in results["cases"].items():
        assert case["rivals"].keys() >= {"deepsiam", "plain", "bare loop"}
        assert case["rounds"] == 3
        assert min(case["flops_per_token"], case["rivals"]["deepsiam"]["peak_memory_bytes"]) > 0
        assert sum(case["parts"].values()) == pytest.approx(1)
        assert case["parts"]["trunk"] > 0.05
        assert 0 < case["exchange"] < 1
        assert case["ratios"]["deepsiam / plain"]["median"] > 0
        assert any(f"{name}: deepsiam / bare loop" in line for line in printed)
    assert "masked language modelling only" in results["cases"]["seed"]["left_out"]["Hugging Face"]
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_step_of_full_size_is_measured_whole_and_its_products_are_those_of_the_plan(
    measured: tuple[list[str], Path],
) -> None:
    found = of_steps(measured[0])["full_size"]
    seconds = found["milliseconds"]["median"] / 1e3
    assert found["share_of_measured_peak"] == pytest.approx(1e9 / seconds / 1e12, rel=0.1, abs=1e-4)
    assert found["tokens_per_second"] > 0
    recipe = full_size.recipe_of("mlm", *tiny_steps.FULL)
    assert isinstance(recipe, PretrainRecipe)
    flops = count(recipe, recipe.trunk["vocab_size"]).flops  # type: ignore[index]
    assert on_gpu.flops_of(recipe) == flops * recipe.batch.size / full_size.RANKS


def test_the_ways_on_a_gpu_change_one_key_each_and_the_committed_numbers_are_in_the_page() -> None:
    plain = full_size.recipe_of("siamese").model_dump()
    for way, changes in on_gpu.WAYS.items():
        changed = full_size.recipe_of("siamese", *changes).model_dump()
        assert sum(changed[key] != plain[key] for key in plain) == (way != "as in the recipe")
    page = (toy.ROOT / "docs" / "scaling.md").read_text()
    cases = json.loads(on_gpu.RESULTS.read_text())["cases"]
    assert cases.keys() == full_size.CASES.keys()
    for ways in cases.values():
        one = ways["as in the recipe"]
        ms = one["milliseconds"]
        row = f"{ms['median']:.0f} ({ms['min']:.0f} to {ms['max']:.0f}) | {one['busy']:.1f} | {one['kernels']:,} |"
        assert row in page
        assert f"{ms['median']:.1f} ms" in on_gpu.line("seed", "as in the recipe", one)
