"""The steps on a GPU: a step is measured whole, here on a CPU; the committed numbers are those of the page."""

import json
import subprocess
import sys

import pytest

from benchmarks.step import on_gpu
from benchmarks.step.full_size import CASES, RANKS, recipe_of
from deepsiam.trainer.cluster.planning.compute import count
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from tests.toy import ROOT

TINY = (
    "trunk.hidden_size=32",
    "trunk.num_hidden_layers=1",
    "trunk.num_attention_heads=2",
    "trunk.intermediate_size=64",
    "trunk.vocab_size=1000",
    "method.max_tokens=32",
    "batch.size=4",
    "batch.micro=2",
)


def test_a_step_is_measured() -> None:
    program = (
        "import json; from benchmarks.step import on_gpu; from benchmarks.common.training import join_alone; "
        "on_gpu.ROUNDS = on_gpu.STEPS = on_gpu.WARM_UP = 1; join_alone(); "
        f"recipe = on_gpu.recipe_of('mlm', *{TINY!r}, *on_gpu.WAYS['recomputed']); "
        "print(json.dumps(on_gpu.measure(recipe, 1e9, 1e12)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    seconds = found["milliseconds"]["median"] / 1e3
    assert found["share_of_measured_peak"] == pytest.approx(1e9 / seconds / 1e12, rel=0.1, abs=1e-4)
    assert found["tokens_per_second"] > 0


def test_the_products_are_those_of_the_plan() -> None:
    recipe = recipe_of("mlm", *TINY, "batch.size=16")
    assert isinstance(recipe, PretrainRecipe)
    assert on_gpu.flops_of(recipe) == count(recipe, 1000).flops * recipe.batch.size / RANKS


def test_the_ways_change_one_key_each() -> None:
    plain = recipe_of("siamese").model_dump()
    for way, changes in on_gpu.WAYS.items():
        changed = recipe_of("siamese", *changes).model_dump()
        assert sum(changed[key] != plain[key] for key in plain) == (way != "as in the recipe")


def test_the_committed_numbers_are_in_the_page() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    cases = json.loads(on_gpu.RESULTS.read_text())["cases"]
    assert cases.keys() == CASES.keys()
    for ways in cases.values():
        one = ways["as in the recipe"]
        ms = one["milliseconds"]
        row = f"{ms['median']:.0f} ({ms['min']:.0f} to {ms['max']:.0f}) | {one['busy']:.1f} | {one['kernels']:,} |"
        assert row in page
        line = on_gpu.line("seed", "as in the recipe", one)
        assert f"{ms['median']:.1f} ms" in line
