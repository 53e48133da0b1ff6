"""optimizer.ema on real ranks: ZeRO stages, precisions, skipped steps, probes, a kill, another number of ranks."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer import evaluate, export
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.killed import kill_at
from tests.trainer.many_runs import ds_config, stage_file, train_and_resume

pytestmark = pytest.mark.slow  # real processes

STEPS, DECAY = 6, 0.6
KEPT = "zero3_kept"  # stage 3 with small parameters whole on every rank, as by default
OVERFLOWS = 15  # a power of two so large, as fp16's first loss scale, that the first steps are skipped
# the states of stages 1 and 2 are divided alike
WHOLE = ["zero1", *(["zero2"] if toy.FULL_TESTS else []), "zero3", KEPT, "zero1_bf16", "zero1_fp16"]
RESUMED = [("ema", "zero3")]  # zero1: test_killed_and_resumed
PROBED = ["zero1", KEPT]


@pytest.fixture(scope="module")
def recipe(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning that saves every step; the single weight of the temperature divides into parts with padding."""
    return toy.finetune_recipe(
        tmp_path_factory.mktemp("moving_average") / "run.yaml",
        toy_collection,
        steps=STEPS,
        trunk={**toy.TRUNK, "initializer_range": 0.2},
        method={"loss": "softmax", "learn_temperature": True},
        optimizer={"lr": 3e-3, "eps": 1e-3, "schedule": "constant", "ema": DECAY},
        probe={"split": "test", "every": STEPS // 2, "documents": 1000},
        checkpoint={"every": 1, "keep": STEPS, "keep_best": "ndcg@10"},
    )


@pytest.fixture(scope="module")
def runs(recipe: Path) -> Path:
    """A folder with the runs ema-2-CONFIG, and none-2-zero1 without an average; see `train_and_resume`."""
    folder = recipe.parent
    files = {f"zero{stage}": stage_file(folder, stage) for stage in (1, 2, 3)}
    (folder / f"{KEPT}.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    files[KEPT] = folder / f"{KEPT}.json"
    files |= {config: ds_config(folder, config, OVERFLOWS) for config in ("zero1_bf16", "zero1_fp16")}

    def run(kind: str, config: str, name: str, *changes: str) -> list[object]:
        probe = [] if kind == "ema" and config in PROBED else ["probe=null", "checkpoint.keep_best=null"]
        average = ["optimizer.ema=null"] if kind == "none" else []
        return [recipe, f"run={folder}/{kind}-{name}", f"deepspeed={files[config]}", *probe, *average, *changes]

    whole = [run("ema", config, f"2-{config}") for config in WHOLE] + [run("none", "zero1", "2-zero1")]
    train_and_resume(whole, [], RESUMED, run, STEPS, folder)
    return folder


def weights_of(run: Path, step: int, part: str = "") -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run, step) / part / checkpoint.WEIGHTS)


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(weight, other[name]) for name, weight in one.items())


def compare_with_means(run: Path, *, first_half: Path | None = None) -> int:
    """Compare each saved average with an fp64 mean of the weights after the steps; return how many were counted."""
    after = [weights_of(first_half if first_half and step <= STEPS // 2 else run, step) for step in range(1, STEPS + 1)]
    counted = [i for i in range(STEPS) if i and differ(after[i], after[i - 1])]  # a skipped step changes nothing
    if 1 in counted:
        counted.insert(0, 0)
    for step in range(STEPS // 2 + 1 if first_half else 1, STEPS + 1):
        steps = [i for i in counted if i < step] or [0]
        shares = torch.tensor([DECAY ** (len(steps) - 1 - i) for i in range(len(steps))], dtype=torch.float64)
        for name, average in weights_of(run, step, "ema").items():
            stacked = torch.stack([after[i][name].double() for i in steps])
            expected = torch.tensordot(shares / shares.sum(), stacked, 1)
            torch.testing.assert_close(average.double(), expected, rtol=1e-6, atol=1e-7)
    return len(counted)


@pytest.mark.parametrize("config", WHOLE)
def test_it_is_the_weighted_mean_of_the_weights_after_all_steps_that_were_not_skipped(runs: Path, config: str) -> None:
    counted = compare_with_means(runs / f"ema-2-{config}")
    assert 2 <= counted < STEPS if config == "zero1_fp16" else counted == STEPS


def test_it_changes_nothing_in_the_training(runs: Path) -> None:
    for step in range(1, STEPS + 1):
        assert not differ(weights_of(runs / "ema-2-zero1", step), weights_of(runs / "none-2-zero1", step))
    assert not (checkpoint.folder(runs / "none-2-zero1", STEPS) / "ema").exists()


@pytest.mark.parametrize("config", [config for config in ("zero2", "zero3") if config in WHOLE])
def test_stages_agree(runs: Path, config: str) -> None:
    expected = weights_of(runs / "ema-2-zero1", STEPS, "ema")
    for name, average in weights_of(runs / f"ema-2-{config}", STEPS, "ema").items():
        torch.testing.assert_close(average, expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_stopped_and_resumed_it_is_the_same_to_the_bit(runs: Path, kind: str, config: str) -> None:
    for part in ("", "ema"):
        whole, resumed = (weights_of(runs / f"{kind}-2-{config}{end}", STEPS, part) for end in ("", "-same"))
        assert not differ(whole, resumed)


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_another_number_of_ranks_goes_on_with_it(runs: Path, kind: str, config: str) -> None:
    whole = runs / f"{kind}-2-{config}"
    compare_with_means(whole.with_name(f"{whole.name}-other"), first_half=whole)


def test_killed_and_resumed_it_is_the_same_to_the_bit(recipe: Path, runs: Path) -> None:
    given = [f"run={runs / 'killed'}", f"deepspeed={runs / 'zero1_fp32.json'}"]
    kill_at(STEPS - 2, 2, "trainer.finetune", recipe, *given)
    done = toy.launch(2, "trainer.finetune", recipe, *given, "--resume")
    assert done.returncode == 0, done.stderr
    for part in ("", "ema"):
        whole, killed = (checkpoint.folder(runs / name, STEPS) / part for name in ("ema-2-zero1", "killed"))
        assert (whole / checkpoint.WEIGHTS).read_bytes() == (killed / checkpoint.WEIGHTS).read_bytes()


@pytest.mark.parametrize("config", PROBED)
def test_probes_measure_it_and_the_best_may_be_its(
    runs: Path, toy_collection: Path, tmp_path: Path, config: str
) -> None:
    run = runs / f"ema-2-{config}"
    saved = checkpoint.folder(run, STEPS)
    systems = [f"--system=weights={saved}", f"--system=ema={saved / 'ema'}"]
    evaluate.main([f"--collection={toy_collection}", "--split=test", *systems, f"--out={tmp_path / 'results.json'}"])
    metrics = {
        name: system["metrics"]["ndcg@10"]
        for name, system in json.loads((tmp_path / "results.json").read_text())["systems"].items()
    }
    curves = {name: toy.scalars(run, f"probe/{tag}ndcg@10") for name, tag in {"weights": "", "ema": "ema/"}.items()}
    assert {name: curve[STEPS] for name, curve in curves.items()} == pytest.approx(metrics, abs=1e-6)
    assert set(curves["ema"]) == {STEPS // 2, STEPS}  # before the first step there is none
    best = max((value, name == "weights", -step) for name, curve in curves.items() for step, value in curve.items())
    newest = checkpoint.newest(run / "best")
    assert newest is not None
    assert checkpoint.step_of(newest) == -best[2]
    if best[2]:
        assert not differ(load_file(newest / checkpoint.WEIGHTS), weights_of(run, -best[2], "" if best[1] else "ema"))


def test_every_command_takes_it_in_place_of_a_run(runs: Path, tmp_path: Path) -> None:
    folder = checkpoint.folder(runs / "ema-2-zero1", STEPS) / "ema"
    trained = load_trained(folder)
    assert trained.step == STEPS
    expected = load_file(folder / checkpoint.WEIGHTS)
    assert all(torch.equal(parameter, expected[name]) for name, parameter in trained.model.named_parameters())
    export.main([str(folder), str(tmp_path / "exported")])
    assert (tmp_path / "exported" / "model.safetensors").is_file()
