"""Training with real deepspeed processes on gloo: exactness, every ds_configs file, kill and resume, errors."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.pretraining.seed import Seed
from deepsiam.models.registry import MATCHING, PRETRAINING
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.recipe.build import new_trunk
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe
from tests import toy
from tests.trainer.many_runs import configs

pytestmark = pytest.mark.slow  # every test starts real processes, about ten seconds each


def plain_losses(recipe: PretrainRecipe, steps: int) -> list[dict[str, float]]:
    """Train with a plain PyTorch loop in one process without DeepSpeed; the whole step is one graph."""
    manifest = Manifest.load(Path(recipe.data.shards))
    tokenizer = tokenizers.load(manifest.directory / "tokenizer.json")
    torch.manual_seed(recipe.seed)
    model = Seed(new_trunk(recipe.trunk, tokenizer), recipe.method)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    kept = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.optimizer.weight_decay}, {"params": kept, "weight_decay": 0.0}],
        betas=recipe.optimizer.betas,
        eps=recipe.optimizer.eps,
    )
    order = shard_data(recipe).order
    batches = order.stream(order.start(), 0, 1)
    history = []
    for step in range(steps):
        sums, counts = {"mlm": 0.0, "decoder": 0.0}, {"mlm": 0, "decoder": 0}
        for _ in range(recipe.batch.micro_batches):
            micro_batch = next(batches).micro_batch
            for term, loss in model(**{k: torch.from_numpy(v) for k, v in micro_batch.arrays.items()}).items():
                sums[term] = sums[term] + loss
                counts[term] += micro_batch.counts[term]
        losses = {term: sums[term] / counts[term] for term in sums}
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip)
        for group in optimizer.param_groups:
            group["lr"] = recipe.optimizer.rate(step, recipe.steps)
        optimizer.step()
        optimizer.zero_grad()
        history.append({term: float(loss) for term, loss in losses.items()})
    return history


def test_first_20_losses_equal_a_plain_loop(shards: Path, tmp_path: Path, launcher: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=20)
    expected = plain_losses(load_recipe(PretrainRecipe, recipe), 20)
    for ranks, started_by in ((1, None), (2, launcher)):
        run = tmp_path / f"run on {ranks}"
        done = toy.launch(ranks, "trainer.pretrain", recipe, f"run={run}", launcher=started_by)
        assert done.returncode == 0, done.stderr
        for term in ("mlm", "decoder"):
            seen = toy.scalars(run, f"loss/{term}")
            assert list(seen) == list(range(1, 21))
            assert list(seen.values()) == pytest.approx([losses[term] for losses in expected], rel=1e-4)


def test_every_ds_config_is_trained_with() -> None:
    """By a pre-training method and a matching model, see there: that the losses agree says more than that they fall."""
    for methods in (PRETRAINING, MATCHING):
        assert {path.stem for path in ds_config.FOLDER.glob("*.json")} == set().union(*configs(methods).values())


def test_a_ds_config_is_named_in_the_recipe(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=3, deepspeed="zero1_fp16")
    done = toy.launch(2, "trainer.pretrain", recipe)
    if not torch.ops.mkldnn._is_mkldnn_fp16_supported():
        one_line(done, "zero1_fp16.json", "asks for fp16, which this cpu device does not support")
        return
    assert done.returncode == 0, done.stderr
    losses = toy.scalars(tmp_path / "run", "loss/decoder")
    assert losses[3] < losses[1]


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that the run ended with code 2 and one line from the trainer, without a traceback."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer.")]
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0]


def test_a_recipe_typo_is_reported_once_for_all_ranks(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    done = toy.launch(2, "trainer.pretrain", recipe, "optimizer.lrr=1")
    one_line(done, "optimizer.lrr", "did you mean optimizer.lr?")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("optimizer.lr=0.03", "rank 1 would train with optimizer.lr=0.03, and rank 0 with 0.0"),
        ("deepspeed=zero1_bf16", "rank 1 would train with "),
    ],
)
def test_ranks_that_read_other_recipes_do_not_train(shards: Path, tmp_path: Path, edit: str, said: str) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    one_line(toy.launch(2, "tests.trainer.launches.edited_recipe", edit, recipe), said, "the same recipe, data and dev")
    assert checkpoint.newest(tmp_path / "run") is None


def test_more_ranks_than_lanes_allow(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    one_line(toy.launch(2, "trainer.pretrain", recipe, "data.lanes=3"), "data.lanes", "3 lanes", "2 ranks")


def test_a_port_in_use_stops_ranks_that_meet_there(shards: Path, tmp_path: Path) -> None:
    import socket

    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = toy.launch(2, "trainer.pretrain", recipe, port=port)
        one_line(done, f"port {port}", "--master_port")
        alone = toy.launch(1, "trainer.pretrain", recipe, "steps=1", port=port)  # one rank meets nobody
        assert alone.returncode == 0, alone.stderr


def test_a_shard_damaged_during_a_run_is_named_by_the_rank_that_reads_it(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    for shard in sorted(copy.glob("*.tar")):
        damaged = bytearray(shard.read_bytes())
        damaged[2000] ^= 1
        shard.write_bytes(damaged)
    recipe = toy.seed_recipe(tmp_path / "run.yaml", copy)
    done = toy.launch(2, "trainer.pretrain", recipe)
    assert done.returncode == 2
    assert "SHA-256" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("size", ["500k", "900k", "2m"])  # full at DeepSpeed's files, at the weights, at the third save
def test_a_full_disk_leaves_the_checkpoint_before(shards: Path, tmp_path: Path, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount the small disk that this test fills")
    try:
        recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, run=str(disk / "run"), checkpoint={"every": 1})
        done = toy.launch(2, "trainer.pretrain", recipe)
        one_line(done, "cannot save a checkpoint")
        assert "step 7: " in done.stderr  # trained to the eighth and last step, at which saving must succeed
        assert "training on, to try again at the next save" in done.stderr
        assert not list((disk / "run" / "checkpoints").glob("*.partial"))
        newest = checkpoint.newest(disk / "run")
        assert (newest is not None) == (size == "2m")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
