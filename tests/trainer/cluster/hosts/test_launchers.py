"""DeepSpeed's launchers: what each runs, and what is refused early; fake tools print how they are called."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deepspeed.launcher import runner

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.launch import Launch
from deepsiam.trainer.training.engine.launcher import WITHOUT_MODULES
from tests.trainer.cluster.hosts import fake_ssh

TOOLS = ("pdsh", "mpirun", "ompi_info", "srun", "sinfo")
PRINTS = '#!/bin/sh\necho "ran $(basename "$0") $@"\n'
MODULE = ["--module", "trainer.pretrain", "recipe.yaml", "ranks=4"]

Printed = Callable[..., str]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with fake tools for all launchers; PATH has only this folder and the system's."""
    for tool in TOOLS:
        (tmp_path / tool).write_text(PRINTS)
        (tmp_path / tool).chmod(0o755)
    fake_ssh.write(tmp_path, fake_ssh.RUNS)
    (tmp_path / "hostfile").write_text("node1 slots=2\nnode2 slots=2\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def printed(tools: Path, capfd: pytest.CaptureFixture[str]) -> Printed:
    """Run DeepSpeed's launcher; return how it called its tool."""

    def run(*options: str) -> str:
        runner.main(["--hostfile", str(tools / "hostfile"), "--master_addr", "node1", *options, *MODULE])
        (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("ran ")]
        return line.removeprefix("ran ")

    return run


def launch(tools: Path, *options: str) -> Launch | None:
    command = ["deepspeed", "--hostfile", str(tools / "hostfile"), *options, *MODULE]
    return Launch.from_command(command, command.index("trainer.pretrain"))


@pytest.mark.parametrize(
    ("name", "called", "times"), [("openmpi", "mpirun -n 4 -hostfile ", 1), ("impi", "mpirun -ppn 2 ", 4)]
)
def test_these_start_the_module_on_all_ranks(printed: Printed, tools: Path, name: str, called: str, times: int) -> None:
    line = printed("--launcher", name, "--launcher_args", "-x MASTER_ADDR=node1")
    assert line.startswith(called)
    assert " -x MASTER_ADDR=node1 " in line
    assert line.count("-m trainer.pretrain recipe.yaml ranks=4") == times  # once per rank, or once for all ranks
    launched = launch(tools, "--launcher", name)
    assert launched
    assert (launched.ranks, launched.by_ssh) == (4, False)


@pytest.mark.parametrize(("name", "called"), [("slurm", "srun -n 4 "), ("mpich", "mpirun -n 4 -ppn 2 ")])
def test_these_do_not_and_are_refused(printed: Printed, tools: Path, name: str, called: str) -> None:
    line = printed("--launcher", name)
    assert line.startswith(called)
    script = line.partition(" -u ")[2]
    # Python takes the module's name for a script, or DeepSpeed's own script for a module
    assert script.startswith("trainer.pretrain") if name == "slurm" else script.startswith("-m /")
    with pytest.raises(InputError) as caught:
        launch(tools, "--launcher", name.upper())
    assert str(caught.value).startswith(f"--launcher {name}: DeepSpeed starts no --module with it: give ")
    assert WITHOUT_MODULES[name] in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--launcher", "ssh"], "--launcher ssh: unknown; choose one of pdsh, openmpi, "),
        (["--launcher", "openmpi", "--include", "node1:0@node2"], "--launcher openmpi: openmpi backend does not"),
        (["--no_ssh"], "--node_rank -1: with --no_ssh, number the 2 hosts of the hostfile from 0"),
        (["--no_ssh", "--node_rank", "2", "--master_addr", "node1"], "--node_rank 2: with --no_ssh"),
        (["--no_ssh", "--node_rank", "1"], "--master_addr is missing"),
    ],
)
def test_options_that_cannot_work_are_refused(tools: Path, options: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        launch(tools, *options)
    assert str(caught.value).startswith(message)


def test_mpirun_gets_no_file_that_it_cannot_read(tools: Path) -> None:
    (tools / "hostfile").write_bytes(b"node1 slots=2\r\nnode2 slots=2\r\n")
    assert launch(tools)
    with pytest.raises(InputError, match=r"hostfile: mpirun reads no lines that end as in Windows"):
        launch(tools, "--launcher", "openmpi")


@pytest.mark.parametrize(("name", "tool"), [("pdsh", "pdsh"), ("openmpi", "ompi_info")])
def test_a_missing_tool_is_refused_where_it_is_needed(
    tools: Path, monkeypatch: pytest.MonkeyPatch, name: str, tool: str
) -> None:
    (tools / tool).unlink()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InputError, match=f"^--launcher {name}: it is not installed on this host"):
        launch(tools, "--launcher", name)
    for options in (["--no_ssh", "--node_rank", "1", "--master_addr", "node1"], ["--num_nodes", "1"]):
        assert launch(tools, "--launcher", name, *options)


@pytest.mark.parametrize("words", ["srun -n 4 python -m", "mpirun --hostfile hosts -n 4 python -m", "torchrun -m"])
def test_another_launcher_knows_its_hosts(words: str) -> None:
    command = [*words.split(), "trainer.pretrain", "recipe.yaml"]
    assert Launch.from_command(command, command.index("trainer.pretrain")) is None
