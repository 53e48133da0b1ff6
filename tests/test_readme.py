"""Every command of the README runs in a fresh clone, as written and in order; its table comes from a full demo."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deepsiam.trainer.ranking.evaluation.results_file import read_results
from deepsiam.trainer.ranking.evaluation.table import table
from tests.toy import ROOT, environment

# added to the trainings of `make demo`: a full run, as in benchmarks/results/demo.json, takes up to twenty minutes
BRIEF = "steps=2 optimizer.warmup_steps=1 checkpoint.every=2 batch.size=8 batch.micro=4 data.lanes=4"
SHORT = "data.pairs=500 method.max_query_tokens=8 method.max_document_tokens=16"  # of what is read
# edits of the clone, by regular expressions: fewer texts are read, and ranked
LESS = {
    "distributions.py": {"return present": "return present[::16]"},
    "pairs.py": {'"test": 1000, "dev": 500': '"test": 50, "dev": 30', "POOL = 10_000": "POOL = 300"},
}
# commands that the test cannot run as written, and what it runs instead
INSTEAD = {
    "make test": None,  # it runs this test
    # the paper's run, with this host as the whole cluster, without ssh: two steps of a one-layer trunk on demo shards
    "deepspeed --hostfile hostfile --module trainer.pretrain recipes/seed_base.yaml --resume": (
        "deepspeed --hostfile hostfile --no_ssh_check --master_addr 127.0.0.1 "
        "--module trainer.pretrain recipes/seed_base.yaml --resume run=runs/base steps=2 "
        "data.mix=null data.shards=data/demo/shards data.lanes=4 data.workers=0 "
        "trunk.vocab_size=8192 trunk.num_hidden_layers=1 trunk.hidden_size=96 trunk.intermediate_size=96 "
        "batch.size=4 batch.micro=1 method.max_tokens=64 deepspeed=cpu"
    ),
}


def pictured() -> list[str]:
    """The commands under the arrows of the picture."""
    return re.findall(r"^ +│ +(.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    typed = [" ".join(line.split(" #")[0].split()) for line in lines if line.strip() and not line.startswith("#")]
    return pictured() + typed


def python_example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return block


def test_the_picture_leads_from_raw_text_to_a_ranking() -> None:
    words = " ".join(pictured())
    assert re.findall(r"data_prep|trainer\.\w+", words) == [
        "data_prep",
        "trainer.pretrain",
        "trainer.finetune",
        "trainer.evaluate",
    ]


def test_the_readme_has_commands_and_only_known_exceptions() -> None:
    assert "make demo" in commands()
    assert set(INSTEAD) <= set(commands())


def brief(training: str) -> str:
    """A training of few steps, whose model reads little of each text that it ranks."""
    return " ".join([training, BRIEF, *([SHORT] if "finetune " in training else [])])


def brief_demo(clone: Path) -> str:
    """The commands of `make demo`, with a few steps of each training."""
    listed = [str(clone / ".venv" / "bin" / "python"), "-m", "deepsiam", "demo", "--dry-run"]
    printed = subprocess.run(listed, cwd=clone, capture_output=True, text=True, env=environment(), check=True).stdout
    lines = printed.splitlines()
    trainings = [line for line in lines if "--resume" in line]
    assert len(trainings) == 5
    return "\n".join(brief(line) if line in trainings else line for line in lines)


def test_the_table_is_that_of_a_whole_demo() -> None:
    results = read_results(ROOT / "benchmarks" / "results" / "demo.json")
    printed = "\n".join(f"    {line}" for line in table(results))
    assert printed in (ROOT / "README.md").read_text()


def prepare_less(demo: Path) -> None:
    for name, edits in LESS.items():
        code = (demo / name).read_text()
        for words, others in edits.items():
            code, number = re.subn(words, others, code)
            assert number == 1, words
        (demo / name).write_text(code)


@pytest.mark.slow  # about two minutes
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    if not (ROOT / ".venv" / "ready").exists():
        pytest.skip("the README's commands need .venv: run this by make test")
    clone = tmp_path / "deepsiam"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    prepare_less(clone / "data_prep" / "demo")
    (clone / ".venv").symlink_to(ROOT / ".venv")
    (ROOT / ".venv" / "ready").touch()  # newer than the clone's pyproject.toml, so that make skips the setup
    (clone / "hostfile").write_text("localhost slots=2\n")
    trainings = {command: brief(command) for command in commands() if "recipes/" in command}
    instead = {**trainings, **INSTEAD, "make demo": brief_demo(clone)}
    lines = [instead.get(command, command) for command in commands()]
    (tmp_path / "commands").write_text("\n".join(filter(None, lines)))
    typed = [str(clone / ".venv" / "bin" / "python"), "-m", "tests.typed", str(tmp_path / "commands")]
    done = subprocess.run(typed, cwd=clone, capture_output=True, text=True, env=environment())
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    results = read_results(clone / "runs" / "demo" / "results.json")
    assert (results.about.queries, results.about.corpus) == (50, 300)
    assert [*results.systems] == ["bm25", "from_random", "from_seed", "reranked", "fused"]
    assert [results.systems[name].stages[-1].split for name in ("reranked", "fused")] == ["dev", "dev"]
    assert (clone / "runs" / "demo" / "export" / "model.safetensors").is_file()
    example = [typed[0], "-c", python_example()]
    ranked = subprocess.run(example, cwd=clone, capture_output=True, text=True, env=environment())
    assert ranked.returncode == 0, ranked.stderr
    assert re.fullmatch(r"[01] -?\d+\.\d+\n", ranked.stdout)
    shutil.rmtree(clone / "data")
