"""The benchmark of a step: all rivals compute the same losses, and every promised number is measured."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from benchmarks.common.step_cases import CASES, Workload, rate_of_pass, recipe_of, workload_of
from benchmarks.step import full_size, on_gpu, runs
from benchmarks.step.methods import agree, ways_of
from benchmarks.step.plain_way import plain_batch, plain_layers
from benchmarks.step.rivals import Bare
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.cluster.planning.compute import count
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.benchmarks.step import tiny_steps

SIZES = {"tokens": 32, "vocab": 100, "hidden": 16, "layers": 3, "batch": 3}  # of a method compared with the plain way


def tiny(name: str, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setitem(CASES, name, tiny_steps.CASES[name])
    return workload_of(recipe_of(name, gpu=False))


def tensors(batch: MicroBatch) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in batch.arrays.items()}


@pytest.mark.parametrize("name", tiny_steps.CASES)
def test_the_plain_way_has_a_label_at_every_position(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = tiny(name, monkeypatch)
    batch = workload.steps[0].micro_batches[0]
    plain = plain_batch(workload.recipe.method, batch).arrays
    positions = [array for name, array in plain.items() if name.endswith("_positions")]
    assert {len(array) for array in positions} == {plain["input_ids"].size}
    assert batch.tokens > 0


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


def test_it_refuses_to_replace_a_function_that_no_method_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.step.plain_way.model_modules", list)
    with pytest.raises(AssertionError, match="linear_cross_entropy"), plain_layers():
        pass


def test_the_bare_loop_learns_in_half_precision_with_full_precision_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = tiny("mlm", monkeypatch)
    keys = workload.recipe.optimizer.model_copy(update={"lr": 1e-2})
    recipe = workload.recipe.model_copy(update={"deepspeed": "zero1_bf16", "optimizer": keys})
    bare = Bare(Workload(recipe, workload.steps[:1], 0.0))
    losses = []
    for _ in range(8):
        assert bare.step() > 0
        losses.append(bare.losses.sum().item())
    assert losses[-1] < 0.9 * losses[0]
    pairs = list(zip(bare.weights, bare.masters, strict=True))
    assert all(torch.equal(weight, master.to(torch.bfloat16)) for weight, master in pairs)
    assert any(not torch.equal(weight.float(), master) for weight, master in pairs)


def test_hugging_face_gets_the_same_blocks_and_takes_a_step_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate", reason="needs the packages of the extra `dev`")
    from benchmarks.step.hugging_face import HuggingFace, rows_of

    workload = tiny("mlm", monkeypatch)
    rows, batches = rows_of(workload), [batch for step in workload.steps for batch in step.micro_batches]
    ids = torch.cat([tensors(batch)["input_ids"] for batch in batches])
    assert torch.equal(torch.stack([row["input_ids"] for row in rows]), ids)
    labels = [label for row in rows for label in row["labels"].tolist() if label != IGNORED]
    assert labels == [t for b in batches for t in b.arrays["mlm_targets"].tolist() if t != IGNORED]
    rival = HuggingFace(workload)
    try:
        assert all(rival.step() > 0 for _ in range(3))
        assert rival.turns.steps == 3
    finally:
        rival.close()
    assert not rival.turns.thread.is_alive()


LINES = """step 5/25  mlm 8.9 decoder 8.7  lr 7.50e-05  grad 2.1  1.9k tokens/s  data wait 0%  ETA 0:15
step 5  validation  mlm 8.9
step 10/25  mlm 8.8 decoder 8.6  lr 1.50e-04  grad 2.0  2.0k tokens/s  data wait 0%  ETA 0:11
saved runs/x/step-10
step 25/25  mlm 8.5 decoder 8.1  lr 0.00e+00  grad 1.7  2.1k tokens/s  data wait 0%  ETA 0:00"""


def test_a_runs_rate_is_that_between_its_progress_lines_and_runs_at_once_count_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = LINES.splitlines()
    assert runs.rate_of(zip([100.0, 101.0, 104.0, 105.0, 110.0], lines, strict=True)) == pytest.approx(2.0)
    with pytest.raises(InputError, match="printed 1 progress lines"):
        runs.rate_of([(100.0, lines[0]), (101.0, lines[1])])
    monkeypatch.setattr(runs, "train_once", lambda way, recipe: 1.5)
    assert runs.train(runs.Way(tmp_path, runs=2), tmp_path / "recipe") == 3.0


def test_whole_runs_are_compared_in_turn_each_with_its_own_shards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained = []

    def train(way: runs.Way, recipe: Path) -> float:
        trained.append(recipe.parent.name)
        values = build(PretrainRecipe, yaml.safe_load(recipe.read_text()), "the recipe")
        assert values.data.shards == str(recipe.parent / "shards")
        return 3.0 if recipe.parent.name == "a" else 2.0

    def prepare(checkout: Path, text: Path, folder: Path) -> Path:
        assert {"text"} == json.loads(text.read_text().splitlines()[-1]).keys()
        (folder / checkout.name).mkdir()
        return folder / checkout.name / "shards"

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(runs, "prepare", prepare)
    results = runs.compare("poly", {name: runs.Way(Path(name)) for name in ("a", "b")}, tmp_path, 60.0)
    assert results["ratios"] == {"a / b": {"min": 1.5, "median": 1.5, "max": 1.5}}
    assert trained[:4] == ["a", "b", "a", "b"]


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
