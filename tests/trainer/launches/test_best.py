"""The checkpoint of the best probe: kept apart, chosen and stopped at as without interruption, whole after a kill."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer import evaluate, export, index
from deepsiam.trainer.cluster.hosts.supervisor import Training
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.checkpoint import State, save_best
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.engine.world import World
from tests import toy
from tests.killed import kill_at
from tests.trainer.runs import STEP, write_run

STEPS, EVERY, PATIENCE = 30, 3, 3


class Engine:
    """One rank that saves given weights."""

    world = World(0, 1, 0, 1)

    def __init__(self, weights: dict[str, torch.Tensor]):
        self.weights = dict(sorted(weights.items()))

    def gather(self, value: object) -> list[object]:
        return [value]

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(weight.shape) for name, weight in self.weights.items()}

    def full_weights(self) -> list[torch.Tensor]:
        return list(self.weights.values())


@pytest.fixture
def save(tmp_path: Path, toy_collection: Path) -> Callable[[int], Path]:
    """Saves the weights of a run, scaled by the step, as its best."""
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="siamese")
    folder = checkpoint.folder(run, STEP)
    weights = load_file(folder / checkpoint.WEIGHTS)
    files = {name: (folder / name).read_bytes() for name in (checkpoint.RECIPE, checkpoint.TOKENIZER, checkpoint.TRUNK)}

    def save(step: int) -> Path:
        engine = Engine({name: weight * step for name, weight in weights.items()})
        state = State(step, Cursor([], micro_sizes={0: 4}), 1, {})
        return save_best(run, engine, state, files)  # type: ignore[arg-type]

    return save


def test_only_the_last_best_is_kept_and_loads(save: Callable[[int], Path], tmp_path: Path) -> None:
    for step in (3, 9, 6):  # a run may go back
        saved = save(step)
        assert [saved] == checkpoint.newest_first(tmp_path / "run" / "best")
        assert load_trained(tmp_path / "run" / "best").step == step
    assert load_trained(tmp_path / "run").step == STEP  # what resumes is apart
    assert not (saved / checkpoint.ENGINE).exists() or not any((saved / checkpoint.ENGINE).iterdir())


@pytest.mark.parametrize("dies_in", ["_finish", "shutil"])
@pytest.mark.parametrize("before", [3, 9])  # a run may go back
def test_a_kill_at_any_point_leaves_a_whole_best(
    save: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str, before: int
) -> None:
    """Before the rename the earlier one is there, after it both are, and the one of the later step counts."""
    save(before)
    with monkeypatch.context() as patch:
        death = Mock(side_effect=KeyboardInterrupt)
        patch.setattr(
            *((checkpoint, "_finish", death) if dies_in == "_finish" else (checkpoint, "shutil", Mock(rmtree=death)))
        )
        with pytest.raises(KeyboardInterrupt):
            save(6)
    found = {checkpoint.step_of(one) for one in checkpoint.newest_first(tmp_path / "run" / "best")}
    assert found == ({before, 6} if dies_in == "shutil" else {before})
    assert load_trained(tmp_path / "run" / "best").step == max(found)
    assert checkpoint.newest_first(tmp_path / "run" / "best") != [saved := save(8)]
    assert checkpoint.newest_first(tmp_path / "run" / "best") == [saved]


@pytest.fixture(scope="module")
def recipe(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that gains at first, until its rate is too high; one rank, deterministic."""
    return toy.finetune_recipe(
        tmp_path_factory.mktemp("best") / "run.yaml",
        toy_collection,
        steps=STEPS,
        trunk=toy.TRUNK,
        optimizer={"lr": 0.02, "warmup_steps": 20, "schedule": "constant"},
        probe={"split": "test", "every": EVERY, "documents": 60},
        checkpoint={"every": EVERY, "keep": 9, "keep_best": "ndcg@10", "stop_after": PATIENCE},
    )


@pytest.fixture(scope="module")
def whole(recipe: Path) -> str:
    """What the undisturbed run printed."""
    done = toy.launch(1, "trainer.finetune", recipe)
    assert done.returncode == 0, done.stderr
    return done.stdout


def probes(printed: str) -> dict[int, float]:
    """The steps and values of the probes."""
    return {int(a): float(b) for a, b in re.findall(r"^step (\d+)  probe .* ndcg@10 ([\d.]+)", printed, re.MULTILINE)}


@pytest.mark.slow
def test_a_run_keeps_its_best_and_stops_without_a_gain(recipe: Path, whole: str) -> None:
    seen, run = probes(whole), recipe.with_suffix("")
    best = max(seen, key=lambda step: seen[step])
    assert list(seen) == list(range(0, best + EVERY * PATIENCE + 1, EVERY))
    assert max(seen) < STEPS
    assert (
        f"stopped after step {max(seen)}: {PATIENCE} probes without a gain in ndcg@10, which was {seen[best]}" in whole
    )
    assert load_trained(run / "best").step == best
    assert load_trained(run).step == max(seen)
    training = Training([], run, STEPS, PATIENCE)
    assert training.stopped_for_good()  # also where a checkpoint of that step was saved before the probe


@pytest.mark.slow
def test_a_model_that_has_diverged_ends_the_run_with_one_line_of_the_probe(recipe: Path) -> None:
    run = recipe.with_name("diverged")
    given = [f"run={run}", "optimizer.lr=1e38", "optimizer.warmup_steps=0", "probe.every=1"]
    done = toy.launch(2, "trainer.finetune", recipe, *given)
    assert done.returncode == 2, done.stderr
    first = next(line for line in done.stderr.splitlines() if line.startswith("trainer."))
    assert first.startswith("trainer.finetune: step 1: the probe cannot measure the model, which may have diverged: ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_evaluate_export_and_index_take_it(recipe: Path, whole: str, toy_collection: Path, tmp_path: Path) -> None:
    best = recipe.with_suffix("") / "best"
    evaluate.main(
        [f"--collection={toy_collection}", "--split=test", f"--system=x={best}", f"--out={tmp_path / 'results.json'}"]
    )
    stage = json.loads((tmp_path / "results.json").read_text())["systems"]["x"]["stages"][0]
    assert stage["checkpoint"] == str(checkpoint.newest(best))
    export.main([str(best), str(tmp_path / "exported")])
    assert (tmp_path / "exported" / "model.safetensors").is_file()
    index.main([str(best), f"--collection={toy_collection}", f"--out={tmp_path / 'index'}"])
    assert (tmp_path / "index" / "manifest.json").is_file()


@pytest.mark.slow
def test_killed_and_resumed_it_stops_at_the_same_step_with_the_same_best(recipe: Path, whole: str) -> None:
    run, other = recipe.with_suffix(""), recipe.with_name("other")
    kill_at(max(probes(whole)) - 2, 1, "trainer.finetune", recipe, f"run={other}")
    done = toy.launch(1, "trainer.finetune", recipe, f"run={other}", "--resume")
    assert done.returncode == 0, done.stderr
    seen = probes(whole)
    assert probes(done.stdout).items() <= seen.items()
    ended = re.findall(r"^stopped after .*$", whole, re.MULTILINE)
    assert len(ended) == 1
    assert re.findall(r"^stopped after .*$", done.stdout, re.MULTILINE) == ended
    one, two = (checkpoint.newest(folder / "best") for folder in (run, other))
    assert one is not None
    assert two is not None
    assert one.name == two.name
    assert (one / checkpoint.WEIGHTS).read_bytes() == (two / checkpoint.WEIGHTS).read_bytes()
    again = toy.launch(1, "trainer.finetune", recipe, f"run={other}", "--resume")
    assert again.returncode == 0, again.stderr
    assert re.findall(r"^stopped after .*$", again.stdout, re.MULTILINE) == ended
    assert checkpoint.newest(other / "best") == two


@pytest.mark.slow
def test_from_an_early_checkpoint_two_ranks_count_on(recipe: Path, whole: str) -> None:
    run, other = recipe.with_suffix(""), recipe.with_name("two_ranks")
    shutil.copytree(run, other)
    for saved in checkpoint.newest_first(other)[:-2]:
        shutil.rmtree(saved)
    done = toy.launch(2, "trainer.finetune", recipe, f"run={other}", "--resume")
    assert done.returncode == 0, done.stderr
    expected = {step: value for step, value in probes(whole).items() if step in probes(done.stdout)}
    assert expected
    first = min(expected)
    assert probes(done.stdout)[first] == pytest.approx(expected[first], abs=0.02)
