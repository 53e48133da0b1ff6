"""Bad input found before training starts: one line, exit code 2, nothing written (in one process, without ranks)."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import finetune, pretrain
from deepsiam.trainer.jobs import pretraining
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.runs import STEP, set_invariants, write_run
from tests.warm import PATIENCE

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command line in this process; it must end with code 2 and one line, which is returned."""
    monkeypatch.setattr(
        "deepsiam.trainer.training.run.command.join", Mock(side_effect=AssertionError("it would have trained"))
    )

    def run(*argv: object, module: str = "trainer.pretrain") -> str:
        command = {"trainer.pretrain": pretrain, "trainer.finetune": finetune}[module]
        with pytest.raises(SystemExit) as ended:
            command.main([str(argument) for argument in argv])
        lines = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2
        assert len(lines) == 1
        assert lines[0].startswith(f"{module}: ")
        return lines[0]

    return run


@pytest.mark.parametrize("module", ["trainer.pretrain", "trainer.finetune"])
def test_gpus_that_torch_does_not_see_are_refused_before_anything(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    monkeypatch.setattr("deepsiam.trainer.training.engine.device.unseen_gpus", lambda: "this host has NVIDIA GPUs, ...")
    said = refused(tmp_path / "none.yaml", module=module)
    assert said == f"{module}: this host has NVIDIA GPUs, ...; or set DS_ACCELERATOR=cpu to train on CPUs"


@pytest.fixture
def recipe(shards: Path, tmp_path: Path) -> Path:
    return toy.seed_recipe(tmp_path / "run.yaml", shards)


@pytest.fixture
def own_shards(shards: Path, tmp_path: Path) -> Path:
    """A copy of the shards that a test may damage."""
    return Path(shutil.copytree(shards, tmp_path / "shards"))


def test_a_damaged_manifest_and_one_of_another_tokenizer(refused: Refused, recipe: Path, own_shards: Path) -> None:
    content = json.loads((own_shards / "tokenizer.json").read_text())
    content["model"]["vocab"]["zzz"] = len(content["model"]["vocab"])
    (own_shards / "tokenizer.json").write_text(json.dumps(content))
    assert "tokenizer" in refused(recipe, f"data.shards={own_shards}")
    manifest = own_shards / "manifest.json"
    manifest.write_text(manifest.read_text()[:100])
    assert "manifest.json" in refused(recipe, f"data.shards={own_shards}")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.shards=none/nowhere", "nowhere"),
        ("ranks=16", "ranks: 16 are expected, and 1 were started: see that --hostfile names a file that exists"),
        ("trunk.vocab_size=32768", "trunk.vocab_size: the recipe sets 32768"),
        ("data.lanes=64", "data.lanes: 64 lanes need at least 64 shards"),
        ("method.max_tokens=65", "method.max_tokens: 65 tokens are more than the trunk's 64 positions"),
        ("trunk.hidden_sizes=8", "hidden_size"),
        ("trunk.model_type=brt", "bert"),
        ("trunk.num_attention_heads=0", "trunk: bert configuration: num_attention_heads must be at least 1, not 0"),
        ("method={name: ict, max_query_tokens: 65, max_tokens: 64}", "method.max_query_tokens: 65 tokens are more"),
        ("method={name: ict, max_query_tokens: 64, max_tokens: 65}", "method.max_tokens: 65 tokens are more"),
        ("method={name: cross_thought, sequence_tokens: 64}", "method.sequence_tokens: 69 tokens are more"),
        (
            "method={name: cross_thought, sequences: 10000000, sequence_tokens: 16, special_tokens: 2}",
            "method.sequences=10000000, method.sequence_tokens=16: a micro-batch of 7",
        ),
        ("deepspeed=zero9", "zero9"),
        ("batch.size=1", "batch.micro=4 does not divide batch.size=1"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused_before_the_first_step(
    refused: Refused, recipe: Path, tmp_path: Path, override: str, words: str
) -> None:
    assert words in refused(recipe, override)
    assert not (tmp_path / "run").exists()


def test_held_out_data_without_an_example(
    refused: Refused, recipe: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = toy.write_shards_with(tmp_path, shards, count=5)
    monkeypatch.setattr("deepsiam.trainer.training.data.opened.examples_of", lambda batcher, items: [])
    line = refused(recipe, f"validation={{shards: {held_out}, every: 100}}")
    assert "validation: the held-out data give no example" in line
    assert not (tmp_path / "run").exists()


def test_an_unwritable_folder(refused: Refused, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file/run" in refused(recipe, f"run={tmp_path}/file/run")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "closed" in refused(recipe, f"run={tmp_path}/closed/run")


def test_a_run_is_not_started_over_by_mistake(refused: Refused, recipe: Path, shards: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)
    assert "add --resume to continue it" in refused(recipe)


@pytest.fixture
def run(recipe: Path, shards: Path, tmp_path: Path) -> Path:
    """A run of the recipe with a checkpoint."""
    invariants = pretraining.build(load(PretrainRecipe, recipe)).resume_invariants
    written = write_run(tmp_path / "run", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=2)
    return set_invariants(written, invariants)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.window=3", "saved with data.window=2, the recipe now says 3"),
        ("seed=2", "saved with seed=1, the recipe now says 2"),
        ("method.decoder_layers=1", "saved with method.decoder_layers=2, the recipe now says 1"),
        ("method={name: mlm, max_tokens: 32}", "saved with method.name=seed, the recipe now says mlm"),
        ("trunk.intermediate_size=32", "saved with trunk.intermediate_size=64, the recipe now says 32"),
        ("trunk.hidden_act=relu", "saved with trunk.hidden_act=None, the recipe now says relu"),
        ("optimizer.weight_decay=0.1", "saved with optimizer.weight_decay=0.01, the recipe now says 0.1"),
        ("optimizer.name=adamax", "saved with optimizer.name=adamw, the recipe now says adamax"),
        ("optimizer.train=1", "saved with optimizer.train=all, the recipe now says 1"),
        ("deepspeed=zero1_bf16", "deepspeed=float32, ZeRO-1 or 2, the recipe now says bfloat16, ZeRO-1 or 2"),
        ("deepspeed=zero3_bf16", "deepspeed=float32, ZeRO-1 or 2, the recipe now says bfloat16, ZeRO-3"),
        (
            "deepspeed=OTHER.json",  # its saved states are in another order
            "saved with deepspeed file.zero_optimization.round_robin_gradients=False, the recipe now says True",
        ),
    ],
)
def test_a_run_is_not_continued_as_another(
    refused: Refused,
    recipe: Path,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("OTHER.json").write_text('{"zero_optimization": {"stage": 1, "round_robin_gradients": true}}')
    assert words in refused(recipe, "--resume", override)
    assert [path.name for path in run.iterdir()] == ["checkpoints"]


def test_keys_that_change_no_number_may_change_and_keys_absent_from_older_checkpoints_are_not_compared(
    recipe: Path, run: Path
) -> None:
    folder = checkpoint.folder(run, STEP)
    changes = ["steps=9", "optimizer.lr=1", "log_every=3", "data.workers=2", "checkpoint.keep=5"]
    checkpoint.check_continues(folder, pretraining.build(load(PretrainRecipe, recipe, changes)).resume_invariants)
    mlm = pretraining.build(load(PretrainRecipe, recipe, ["method={name: mlm, max_tokens: 32}"])).resume_invariants
    saved = checkpoint.read_state(folder).resume_invariants
    set_invariants(run, {key: value for key, value in saved.items() if key != "method"})
    checkpoint.check_continues(folder, mlm)


HOLD_LOCK = (
    "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def test_the_lock_comes_before_the_newest_checkpoint_is_chosen(refused: Refused, recipe: Path, run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, run / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert "is being trained by another process" in refused(recipe)  # rather than advice to add --resume
        other.communicate("")


def test_nothing_is_recorded_before_the_ranks_have_joined(
    refused: Refused, recipe: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "deepsiam.trainer.training.run.command.join", Mock(side_effect=InputError("port 29500 is in use"))
    )
    (run / "recipe.yaml").write_text("as it was")
    assert "port 29500 is in use" in refused(recipe, "--resume", "steps=9")
    assert (run / "recipe.yaml").read_text() == "as it was"
    assert not (run / "environment.json").exists()


LOADER_WORKER = """
import multiprocessing, signal, time
from deepsiam.trainer.training.run import command

def work(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)

command.has_joined = lambda: True
with command.skip_interpreter_shutdown():
    ready = multiprocessing.Event()
    multiprocessing.Process(target=work, args=(ready,), daemon=True).start()
    ready.wait()
    {end}
"""


@pytest.mark.parametrize(
    ("end", "code", "said"), [("raise SystemExit(3)", 3, ""), ("_ = 1 / 0", 1, "ZeroDivisionError: division by zero")]
)
def test_a_rank_ends_its_loader_workers_with_itself(end: str, code: int, said: str) -> None:
    command = [sys.executable, "-c", LOADER_WORKER.format(end=end)]  # run() returns when all have closed its pipes
    done = subprocess.run(command, cwd=toy.ROOT, env=toy.environment(), capture_output=True, timeout=PATIENCE)
    assert done.returncode == code
    assert said in done.stderr.decode()


def siamese_recipe(folder: Path, collection: Path, **method: object) -> Path:
    """Write a recipe that fine-tunes `folder`/pre on a collection into `folder`/tuned."""
    return toy.finetune_recipe(folder / "tuned.yaml", collection, init_from=str(folder / "pre"), method=method)


def test_fine_tuning_from_nothing_and_with_another_tokenizer(
    refused: Refused, shards: Path, toy_collection: Path, tmp_path: Path
) -> None:
    recipe = siamese_recipe(tmp_path, toy_collection)
    assert "pre: no such folder" in refused(recipe, module="trainer.finetune")
    other = toy.write_shards(tmp_path / "other", count=100, seed=9)
    write_run(tmp_path / "pre", other / "tokenizer.json", name="mlm", max_tokens=32)
    assert "another tokenizer" in refused(recipe, module="trainer.finetune")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("method.negatives_per_query=100", "method.negatives_per_query: 100, but split train has only 99 documents"),
        ("validation={split: test, every: 1}", "method.negatives_per_query: 40, but split test has only 19 documents"),
        ("validation={split: test, pairs: 21, every: 1}", "lower validation.pairs, or name another validation.split"),
        (
            "data.pairs=101",
            "split train has 100 relevant pairs, the recipe asks for 101: lower data.pairs, or name another data.split",
        ),
        (
            "data.lanes=101",
            r"data.lanes: 101 lanes need at least 101 shards \(in fine-tuning: pairs\), the data has 100",
        ),
    ],
)
def test_too_few_pairs_or_negatives(
    refused: Refused, toy_collection: Path, tmp_path: Path, override: str, words: str
) -> None:
    write_run(tmp_path / "pre", toy_collection / "tokenizer.json", name="mlm", max_tokens=32)
    recipe = siamese_recipe(tmp_path, toy_collection, negatives_per_query=40)
    assert re.search(words, refused(recipe, override, module="trainer.finetune"))
    assert not (tmp_path / "tuned").exists()
