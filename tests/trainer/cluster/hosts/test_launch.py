"""Launches: the hostfile, the hosts that a command line chooses, what each of DeepSpeed's launchers runs or refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deepspeed.launcher import runner

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.launch import Launch, read_hostfile
from deepsiam.trainer.training.engine.launcher import WITHOUT_MODULES
from tests.toy import ROOT
from tests.trainer.cluster.hosts import fake_ssh

SOUND = """# the cluster

node1 slots=8
  node-2.example.org   slots=4   # the old one
user@10.0.0.3 slots=1\t
"""


@pytest.mark.parametrize("text", [SOUND, SOUND.replace("\n", "\r\n")], ids=["LF", "CRLF"])
def test_a_hostfile_is_read_as_deepspeed_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostfile"
    path.write_bytes(text.encode())
    assert read_hostfile(path) == {"node1": 8, "node-2.example.org": 4, "user@10.0.0.3": 1}
    assert read_hostfile(path) == runner.fetch_hostfile(str(path))


def test_the_example_is_one() -> None:
    path = ROOT / "hostfile.example"
    assert read_hostfile(path) == runner.fetch_hostfile(str(path)) == {"node1": 8, "node2": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node1 slots=8\nnode2 slot=8\n", ":2: 'node2 slot=8' is not `NAME slots=NUMBER`"),
        ("node1\n", ":1: 'node1' is not"),
        ("node1:8\n", ":1: 'node1:8' is not"),
        ("node1 slots=8x\n", ":1: 'node1 slots=8x' is not"),
        ("node1 slots = 8\n", ":1: 'node1 slots = 8' is not"),
        ("node1 slots=-1\n", ":1: 'node1 slots=-1' is not"),
        ("-oProxyCommand=x slots=1\n", ":1: '-oProxyCommand=x slots=1' is not"),
        ("node1 # 8 GPUs\n", ":1: 'node1 # 8 GPUs' is not"),
        ("\ufeffnode1 slots=8\n", ":1: '\\\\ufeffnode1 slots=8' is not"),
        ("node1 slots=0\n", ":1: node1 has no slots: give it one for each GPU"),
        ("\nnode1 slots=8\nnode2 slots=8\nnode1 slots=4\n", ":4: node1 is named in line 2 already"),
        ("node1 slots=1000000000\n", ":1: more than 1,024 slots, the most of a host"),
        (f"node1 slots={'9' * 5000}\n", ":1: more than 1,024 slots"),
        ("".join(f"n{number} slots=8\n" for number in range(100_000)), ":10001: more than 10,000 hosts"),
        ("#" * 5_000_000, ": larger than 4,194,304 bytes"),
        ("", ": names no host"),
        ("# nobody\n\n", ": names no host"),
    ],
)
def test_a_line_that_is_no_host_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hostfile"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_hostfile(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hostfile"):
        read_hostfile(tmp_path / "hostfile")
    (tmp_path / "hostfile").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text"):
        read_hostfile(tmp_path / "hostfile")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three hosts with two ranks each, and programs that are never run."""
    for program in ("pdsh", "mpirun"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "hostfile"
    path.write_text("a slots=2\nb slots=2\nc slots=2\n")
    return path


def launch(*options: str) -> Launch | None:
    command = ["deepspeed", *options, "--module", "trainer.pretrain", "recipe.yaml", "--resume"]
    return Launch.from_command(command, command.index("trainer.pretrain"))


def chosen(hosts: Path, *options: str) -> dict[str, list[int]]:
    launched = launch("--hostfile", str(hosts), *options)
    assert launched
    return {host: list(slots) for host, slots in launched.slots.items()}


def test_without_a_hostfile_there_are_no_hosts() -> None:
    assert launch("--num_gpus", "2") is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"a": [0, 1], "b": [0, 1], "c": [0, 1]}),
        (("--include", "b@c:1"), {"b": [0, 1], "c": [1]}),
        (("--exclude=a@b:0",), {"b": [1], "c": [0, 1]}),
        (("--num_nodes", "2", "--num_gpus", "1"), {"a": [0], "b": [0]}),
    ],
)
def test_options_choose_hosts_as_deepspeed_does(
    hosts: Path, options: tuple[str, ...], expected: dict[str, list[int]]
) -> None:
    assert chosen(hosts, *options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--include", "d"), "--include d: Hostname 'd' not found in hostfile"),
        (("--include", "a:7"), "--include a:7: No slot '7' specified on host 'a'"),
        (("--include", "a:x"), "--include a:x: "),
        (("--exclude", "d"), "--exclude d: Hostname 'd' not found in hostfile"),
        (("--include", "a:0:1"), "--include a:0:1: too many values"),
        (("--include", "a", "--exclude", "b"), "--include a: include_str and exclude_str are mutually exclusive"),
        (("--exclude", "a@b@c"), "--exclude a@b@c: leaves no host"),
        (("--exclude", "a", "--num_nodes", "1"), "--exclude a: DeepSpeed takes it or --num_nodes and --num_gpus"),
        (("--num_nodes", "4"), "--num_nodes 4: "),  # DeepSpeed would train on three
        (("--num_gpus", "3"), "--num_gpus 3: a has 2 slots in "),  # DeepSpeed would start three ranks on two slots
        (("--includes", "a"), "deepspeed: unrecognized arguments: --includes"),
        (("--master_port", "x"), "deepspeed: argument --master_port: invalid int value: 'x'"),
    ],
)
def test_what_names_no_hosts_is_refused(hosts: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        chosen(hosts, *options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", ["it's", "a&b", "a;b", "$HOME", "a`b`", "a\\b", "a\nb", "%h"])
def test_a_value_that_would_not_arrive_is_refused_where_a_shell_reads_it(hosts: Path, value: str) -> None:
    def launched(*options: str) -> Launch | None:
        command = ["deepspeed", "-H", str(hosts), *options, "--module", "trainer.pretrain", "r.yaml", f"run={value}"]
        return Launch.from_command(command, command.index("trainer.pretrain"))

    for options in [(), ("--num_nodes", "1", "--force_multi")]:
        with pytest.raises(
            InputError, match=r"^['\"]run=.*: DeepSpeed does not quote .* write the value into the recipe"
        ):
            launched(*options)
    for options in [("--num_nodes", "1"), ("--launcher", "impi"), ("--no_ssh", "--node_rank=0", "--master_addr=a")]:
        assert launched(*options)


def test_a_folder_that_the_hosts_would_not_find_is_refused(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my runs").mkdir()
    monkeypatch.chdir(tmp_path / "my runs")
    with pytest.raises(InputError, match="my runs': DeepSpeed does not quote ' ' for the hosts' shells: rename it"):
        launch("-H", str(hosts))


@pytest.mark.parametrize("options", [(), ("--exclude", "b"), ("--num_nodes", "3", "--num_gpus=2")])
def test_the_narrowed_command_starts_those_ranks_only(hosts: Path, options: tuple[str, ...]) -> None:
    launched = launch("--hostfile", str(hosts), "--master_port", "29600", *options)
    assert launched
    command = launched.on(["a", "c"], 3)
    given = runner.parse_args(command[1:])
    slots = {"a": 2, "b": 2, "c": 2}
    resources = runner.parse_inclusion_exclusion(slots, given.include, given.exclude)
    assert dict(runner.apply_num_nodes_and_gpus(resources, given.num_nodes, given.num_gpus)) == {"a": [0, 1], "c": [0]}
    assert (given.master_port, given.force_multi, given.user_script) == (29600, True, "trainer.pretrain")
    assert given.user_args == ["recipe.yaml", "--resume"]


def test_the_address_of_a_host_that_is_left_out_is_not_kept(hosts: Path) -> None:
    launched = launch("--hostfile", str(hosts), "--master_addr", "a-ib")
    assert launched
    for hosts, address in ((["a", "c"], "a-ib"), (["b", "c"], "")):
        assert runner.parse_args(launched.on(hosts, 3)[1:]).master_addr == address


@pytest.mark.parametrize("name", ["user@b", "fd00::2"])
def test_a_host_that_include_cannot_name_is_refused_where_others_could_be_left_out(hosts: Path, name: str) -> None:
    hosts.write_text(f"a slots=2\n{name} slots=2\n")
    launched = launch("-H", str(hosts))
    assert launched
    with pytest.raises(InputError, match=f"^{name}: DeepSpeed's --include cannot name this host"):
        launched.require_fewer()
    without_ssh = launch("-H", str(hosts), "--no_ssh", "--node_rank", "0", "--master_addr", "a")
    assert without_ssh
    without_ssh.require_fewer()


def test_neither_a_scheduler_nor_this_host_alone_needs_ssh(hosts: Path) -> None:
    by_ssh = {}
    without_ssh = ("--no_ssh", "--node_rank", "0", "--master_addr", "a")
    for options in [(), ("--launcher", "impi"), without_ssh, ("--num_nodes", "1")]:
        launched = launch("-H", str(hosts), *options)
        assert launched
        by_ssh[options[:1]] = launched.by_ssh
    assert by_ssh == {(): True, ("--launcher",): False, ("--no_ssh",): False, ("--num_nodes",): False}


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


def launched_by(tools: Path, *options: str) -> Launch | None:
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
    launched = launched_by(tools, "--launcher", name)
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
        launched_by(tools, "--launcher", name.upper())
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
        launched_by(tools, *options)
    assert str(caught.value).startswith(message)


def test_mpirun_gets_no_file_that_it_cannot_read(tools: Path) -> None:
    (tools / "hostfile").write_bytes(b"node1 slots=2\r\nnode2 slots=2\r\n")
    assert launched_by(tools)
    with pytest.raises(InputError, match=r"hostfile: mpirun reads no lines that end as in Windows"):
        launched_by(tools, "--launcher", "openmpi")


@pytest.mark.parametrize(("name", "tool"), [("pdsh", "pdsh"), ("openmpi", "ompi_info")])
def test_a_missing_tool_is_refused_where_it_is_needed(
    tools: Path, monkeypatch: pytest.MonkeyPatch, name: str, tool: str
) -> None:
    (tools / tool).unlink()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InputError, match=f"^--launcher {name}: it is not installed on this host"):
        launched_by(tools, "--launcher", name)
    for options in (["--no_ssh", "--node_rank", "1", "--master_addr", "node1"], ["--num_nodes", "1"]):
        assert launched_by(tools, "--launcher", name, *options)


@pytest.mark.parametrize("words", ["srun -n 4 python -m", "mpirun --hostfile hosts -n 4 python -m", "torchrun -m"])
def test_another_launcher_knows_its_hosts(words: str) -> None:
    command = [*words.split(), "trainer.pretrain", "recipe.yaml"]
    assert Launch.from_command(command, command.index("trainer.pretrain")) is None
