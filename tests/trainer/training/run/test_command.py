"""Bad input found before training starts: one line, exit code 2, nothing written; versions of the code, as recorded."""

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.jobs import pretraining
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.versions import code_hash, git_commit
from tests import toy
from tests.trainer.runs import STEP, set_invariants, write_run

Refused = Callable[[str], str]

NEW, OLD, TUNE = "pretrain new.yaml", "pretrain old.yaml --resume", "finetune tune.yaml"
ROWS = [  # a command as it is typed in the folder `places`, and what its line says
    (f"{NEW} data.shards=none/nowhere", "nowhere"),
    (f"{NEW} data.shards=cut", "manifest.json"),
    (f"{NEW} data.shards=changed", "tokenizer"),
    (f"{NEW} run=a_file/run", "a_file/run"),
    (f"{NEW} ranks=16", "ranks: 16 are expected, and 1 were started: see that --hostfile names a file that exists"),
    (f"{NEW} trunk.vocab_size=32768", "trunk.vocab_size: the recipe sets 32768"),
    (f"{NEW} data.lanes=64", "data.lanes: 64 lanes need at least 64 shards"),
    (f"{NEW} method.max_tokens=65", "method.max_tokens: 65 tokens are more than the trunk's 64 positions"),
    (f"{NEW} trunk.hidden_sizes=8", "hidden_size"),
    (f"{NEW} trunk.model_type=brt", "bert"),
    (f"{NEW} trunk.num_attention_heads=0", "trunk: bert configuration: num_attention_heads must be at least 1, not 0"),
    (f"{NEW} 'method={{name: ict, max_query_tokens: 65, max_tokens: 64}}'", "method.max_query_tokens: 65 tokens are"),
    (f"{NEW} 'method={{name: ict, max_query_tokens: 64, max_tokens: 65}}'", "method.max_tokens: 65 tokens are more"),
    (f"{NEW} 'method={{name: cross_thought, sequence_tokens: 64}}'", "method.sequence_tokens: 69 tokens are more"),
    (
        f"{NEW} 'method={{name: cross_thought, sequences: 10000000, sequence_tokens: 16, special_tokens: 2}}'",
        "method.sequences=10000000, method.sequence_tokens=16: a micro-batch of 7",
    ),
    (f"{NEW} deepspeed=zero9", "zero9"),
    (f"{NEW} batch.size=1", "batch.micro=4 does not divide batch.size=1"),
    # a run that is there
    ("pretrain old.yaml", "add --resume to continue it"),
    (f"{OLD} data.window=3", "saved with data.window=2, the recipe now says 3"),
    (f"{OLD} seed=2", "saved with seed=1, the recipe now says 2"),
    (f"{OLD} method.decoder_layers=1", "saved with method.decoder_layers=2, the recipe now says 1"),
    (f"{OLD} 'method={{name: mlm, max_tokens: 32}}'", "saved with method.name=seed, the recipe now says mlm"),
    (f"{OLD} trunk.intermediate_size=32", "saved with trunk.intermediate_size=64, the recipe now says 32"),
    (f"{OLD} trunk.hidden_act=relu", "saved with trunk.hidden_act=None, the recipe now says relu"),
    (f"{OLD} optimizer.weight_decay=0.1", "saved with optimizer.weight_decay=0.01, the recipe now says 0.1"),
    (f"{OLD} optimizer.name=adamax", "saved with optimizer.name=adamw, the recipe now says adamax"),
    (f"{OLD} optimizer.train=1", "saved with optimizer.train=all, the recipe now says 1"),
    (f"{OLD} deepspeed=zero1_bf16", "deepspeed=float32, ZeRO-1 or 2, the recipe now says bfloat16, ZeRO-1 or 2"),
    (f"{OLD} deepspeed=zero3_bf16", "deepspeed=float32, ZeRO-1 or 2, the recipe now says bfloat16, ZeRO-3"),
    (  # its saved states are in another order
        f"{OLD} deepspeed=robin.json",
        "saved with deepspeed file.zero_optimization.round_robin_gradients=False, the recipe now says True",
    ),
    # fine-tuning
    (f"{TUNE} --find-lr --resume", "not allowed with argument"),
    (f"{TUNE} init_from=none", "none: no such folder"),
    (f"{TUNE} init_from=foreign", "another tokenizer"),
    (f"{TUNE} method.negatives_per_query=100", "method.negatives_per_query: 100, but split train has only 99 document"),
    (f"{TUNE} 'validation={{split: test, every: 1}}'", "method.negatives_per_query: 40, but split test has only 19 d"),
    (f"{TUNE} 'validation={{split: test, pairs: 21, every: 1}}'", "lower validation.pairs, or name another validation"),
    (
        f"{TUNE} data.pairs=101",
        "split train has 100 relevant pairs, the recipe asks for 101: lower data.pairs, or name",
    ),
    (f"{TUNE} data.lanes=101", "101 lanes need at least 101 shards (in fine-tuning: pairs), the data has 100"),
]
if os.geteuid():  # root may write everywhere
    ROWS.append((f"{NEW} run=closed/run", "closed"))


@pytest.fixture(scope="module")
def places(shards: Path, toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the rows name; read only."""
    folder = tmp_path_factory.mktemp("places")
    toy.seed_recipe(folder / "new.yaml", shards)
    old = load(PretrainRecipe, toy.seed_recipe(folder / "old.yaml", shards))
    run = write_run(folder / "old", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=2)
    set_invariants(run, pretraining.build(old).resume_invariants)
    (folder / "robin.json").write_text('{"zero_optimization": {"stage": 1, "round_robin_gradients": true}}')
    (folder / "a_file").touch()
    (folder / "closed").mkdir(mode=0o500)
    for name in ("cut", "changed"):
        shutil.copytree(shards, folder / name)
    (folder / "cut" / "manifest.json").write_text((shards / "manifest.json").read_text()[:100])
    content = json.loads((shards / "tokenizer.json").read_text())
    content["model"]["vocab"]["zzz"] = len(content["model"]["vocab"])
    (folder / "changed" / "tokenizer.json").write_text(json.dumps(content))
    start, method = str(folder / "start"), {"negatives_per_query": 40}
    toy.finetune_recipe(folder / "tune.yaml", toy_collection, init_from=start, method=method)
    foreign = toy.write_shards(folder / "foreign_text", count=100, seed=9)
    for name, texts in {"start": shards, "foreign": foreign}.items():
        write_run(folder / name, texts / "tokenizer.json", name="mlm", max_tokens=32)
    return folder


@pytest.fixture
def refused(places: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command in `places`, which must end with code 2 and one line, and write nothing there; return the line."""
    join = Mock(side_effect=AssertionError("it would have trained"))
    monkeypatch.setattr("deepsiam.trainer.training.run.command.join", join)
    monkeypatch.chdir(places)

    def run(typed: str) -> str:
        command, *arguments = shlex.split(typed)
        before = sorted(places.rglob("*"))
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(f"deepsiam.trainer.{command}").main(arguments)
        (line,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2
        assert line.startswith((f"trainer.{command}: ", f"deepsiam {command}: "))  # the second by its parser
        assert sorted(places.rglob("*")) == before
        return line

    return run


@pytest.mark.parametrize(("typed", "said"), ROWS, ids=[typed for typed, _ in ROWS])
def test_what_cannot_work_is_refused_before_the_first_step(refused: Refused, typed: str, said: str) -> None:
    assert said in refused(typed)


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_gpus_that_torch_does_not_see_are_refused_before_anything(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("deepsiam.trainer.training.engine.device.unseen_gpus", lambda: "this host has NVIDIA GPUs, ...")
    said = "this host has NVIDIA GPUs, ...; or set DS_ACCELERATOR=cpu to train on CPUs"
    assert refused(f"{command} none.yaml") == f"trainer.{command}: {said}"


def test_held_out_data_without_an_example(refused: Refused, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepsiam.trainer.training.data.opened.examples_of", lambda batcher, items: [])
    line = refused(f"{NEW} 'validation={{shards: {shards}, every: 100}}'")
    assert "validation: the held-out data give no example" in line


@pytest.fixture
def run(places: Path, tmp_path: Path) -> Path:
    """A copy of the run of old.yaml."""
    return Path(shutil.copytree(places / "old", tmp_path / "run"))


def test_keys_that_change_no_number_may_change_and_keys_absent_from_older_checkpoints_are_not_compared(
    places: Path, run: Path
) -> None:
    folder = checkpoint.folder(run, STEP)
    changes = ["steps=9", "optimizer.lr=1", "log_every=3", "data.workers=2", "checkpoint.keep=5"]
    recipes = [
        load(PretrainRecipe, places / "old.yaml", given) for given in (changes, ["method={name: mlm, max_tokens: 32}"])
    ]
    changed, mlm = (pretraining.build(recipe).resume_invariants for recipe in recipes)
    checkpoint.check_continues(folder, changed)
    saved = checkpoint.read_state(folder).resume_invariants
    set_invariants(run, {key: value for key, value in saved.items() if key != "method"})
    checkpoint.check_continues(folder, mlm)


HOLD_LOCK = (
    "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def test_the_lock_comes_before_the_newest_checkpoint_is_chosen(refused: Refused, run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, run / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        # rather than advice to add --resume
        assert "is being trained by another process" in refused(f"pretrain old.yaml run={run}")
        other.communicate("")


def test_nothing_is_recorded_before_the_ranks_have_joined(
    refused: Refused, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = Mock(side_effect=InputError("port 29500 is in use"))
    monkeypatch.setattr("deepsiam.trainer.training.run.command.join", join)
    (run / "recipe.yaml").write_text("as it was")
    assert "port 29500 is in use" in refused(f"{OLD} run={run} steps=9")
    assert (run / "recipe.yaml").read_text() == "as it was"
    assert not (run / "environment.json").exists()


@pytest.mark.parametrize(
    ("end", "code", "said"), [("exit", 3, ""), ("error", 1, "ZeroDivisionError: division by zero")]
)
def test_a_rank_ends_its_loader_workers_with_itself(end: str, code: int, said: str) -> None:
    """Its pipes are closed, and the call returns, when the worker has ended, too."""
    command = [toy.forked_python(), "-m", "tests.trainer.training.run.loader_worker", end]
    done = subprocess.run(command, cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == code
    assert said in done.stderr


@pytest.fixture(autouse=True)
def no_repository_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stop git from looking for a repository above the test's folder."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("GIT_DIR", "GIT_WORK_TREE"):  # set if a commit hook runs the tests
        monkeypatch.delenv(name, raising=False)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkouts_commit_says_whether_there_are_changes(tmp_path: Path) -> None:
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "file").write_text("1")
    git(folder, "init")
    git(folder, "add", "file")
    git(folder, "commit", "--message", "one")
    git(folder, "tag", "--annotate", "v1", "--message", "a release")  # the commit is still named by its hash
    assert git_commit(folder) == git(folder, "rev-parse", "HEAD")
    (folder / "file").write_text("2")
    assert git_commit(folder) == git(folder, "rev-parse", "HEAD") + "-dirty"


def test_without_checkout_folder_or_git_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_commit(tmp_path) == git_commit(tmp_path / "missing") == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit(toy.ROOT) == "unknown"


def test_code_is_known_by_its_bytes_and_names(tmp_path: Path) -> None:
    hashes = set()
    for name, content in {"trainer/a.py": "1", "models/a.py": "1", "ds_configs/b.json": "{}", "docs/c.md": "c"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
        hashes.add(code_hash(tmp_path))
    (tmp_path / "trainer/a.py").write_text("2")
    assert len(hashes | {code_hash(tmp_path)}) == 4  # pages are no code
