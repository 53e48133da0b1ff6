"""Launches: the hostfile, the hosts that a command line chooses, what each of DeepSpeed's launchers runs or refuses."""

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


NO_HOSTFILES = [
    (b"node1 slots=8\nnode2 slot=8\n", ":2: 'node2 slot=8' is not `NAME slots=NUMBER`"),
    (b"node1\n", ":1: 'node1' is not"),
    (b"node1:8\n", ":1: 'node1:8' is not"),
    (b"node1 slots=8x\n", ":1: 'node1 slots=8x' is not"),
    (b"node1 slots = 8\n", ":1: 'node1 slots = 8' is not"),
    (b"node1 slots=-1\n", ":1: 'node1 slots=-1' is not"),
    (b"-oProxyCommand=x slots=1\n", ":1: '-oProxyCommand=x slots=1' is not"),
    (b"node1 # 8 GPUs\n", ":1: 'node1 # 8 GPUs' is not"),
    ("\ufeffnode1 slots=8\n".encode(), ":1: '\\\\ufeffnode1 slots=8' is not"),
    (b"node1 slots=0\n", ":1: node1 has no slots: give it one for each GPU"),
    (b"\nnode1 slots=8\nnode2 slots=8\nnode1 slots=4\n", ":4: node1 is named in line 2 already"),
    (b"node1 slots=1025\n", ":1: more than 1,024 slots, the most of a host"),
    (b"node1 slots=" + b"9" * 5000, ":1: more than 1,024 slots"),
    (b"".join(b"n%d slots=8\n" % number for number in range(10_001)), ":10001: more than 10,000 hosts"),
    (b"#" * 5_000_000, ": larger than 4,194,304 bytes"),
    (b"", ": names no host"),
    (b"# nobody\n\n", ": names no host"),
    (b"\xff\xfe\x00", ": is not text"),
    (None, ": cannot read"),
]


@pytest.mark.parametrize(("content", "message"), NO_HOSTFILES, ids=[message for _, message in NO_HOSTFILES])
def test_a_line_that_is_no_host_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "hostfile"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_hostfile(path)
    assert str(caught.value).startswith(f"{path}{message}")


TOOLS = ("pdsh", "mpirun", "ompi_info", "srun", "sinfo")
MODULE = ["--module", "trainer.pretrain", "recipe.yaml", "--resume"]
NO_SSH = "--no_ssh --node_rank 0 --master_addr a"
ALL = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three hosts with two ranks each; the tools of all launchers print how they were called."""
    for tool in TOOLS:
        (tmp_path / tool).write_text('#!/bin/sh\necho "ran $(basename "$0") $@"\n')
        (tmp_path / tool).chmod(0o755)
    fake_ssh.write(tmp_path, fake_ssh.RUNS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "hostfile"
    path.write_text("a slots=2\nb slots=2\nc slots=2\n")
    return path


def from_command(*words: str) -> Launch | None:
    return Launch.from_command(words, words.index("trainer.pretrain"))


def launch(hosts: Path, options: str, *overrides: str) -> Launch:
    """The launch of a command line with the hostfile."""
    launched = from_command("deepspeed", "--hostfile", str(hosts), *options.split(), *MODULE, *overrides)
    assert launched
    return launched


@pytest.mark.parametrize(
    "words",
    ["deepspeed --num_gpus 2 --module", "srun -n 4 python -m", "mpirun --hostfile hosts -n 4 python -m", "torchrun -m"],
)
def test_without_a_hostfile_of_deepspeed_there_are_no_hosts(words: str) -> None:
    assert from_command(*words.split(), "trainer.pretrain", "recipe.yaml") is None


@pytest.mark.parametrize(
    ("options", "expected", "by_ssh"),
    [
        ("", ALL, True),
        ("--include b@c:1", {"b": [0, 1], "c": [1]}, True),
        ("--exclude=a@b:0", {"b": [1], "c": [0, 1]}, True),
        ("--num_nodes 2 --num_gpus 1", {"a": [0], "b": [0]}, True),
        ("--num_nodes 1", {"a": [0, 1]}, False),  # this host alone needs no ssh, nor does a scheduler
        ("--num_nodes 1 --force_multi", {"a": [0, 1]}, True),
        ("--launcher impi", ALL, False),
        (NO_SSH, ALL, False),
    ],
)
def test_options_choose_hosts_as_deepspeed_does(
    hosts: Path, options: str, expected: dict[str, list[int]], by_ssh: bool
) -> None:
    launched = launch(hosts, options)
    assert {host: list(slots) for host, slots in launched.slots.items()} == expected
    assert launched.by_ssh == by_ssh


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--include d", "--include d: Hostname 'd' not found in hostfile"),
        ("--include a:7", "--include a:7: No slot '7' specified on host 'a'"),
        ("--include a:x", "--include a:x: "),
        ("--exclude d", "--exclude d: Hostname 'd' not found in hostfile"),
        ("--include a:0:1", "--include a:0:1: too many values"),
        ("--include a --exclude b", "--include a: include_str and exclude_str are mutually exclusive"),
        ("--exclude a@b@c", "--exclude a@b@c: leaves no host"),
        ("--exclude a --num_nodes 1", "--exclude a: DeepSpeed takes it or --num_nodes and --num_gpus"),
        ("--num_nodes 4", "--num_nodes 4: "),  # DeepSpeed would train on three
        ("--num_gpus 3", "--num_gpus 3: a has 2 slots in "),  # DeepSpeed would start three ranks on two slots
        ("--includes a", "deepspeed: unrecognized arguments: --includes"),
        ("--master_port x", "deepspeed: argument --master_port: invalid int value: 'x'"),
        ("--launcher ssh", "--launcher ssh: unknown; choose one of pdsh, openmpi, "),
        ("--launcher openmpi --include a:0@b", "--launcher openmpi: openmpi backend does not"),
        ("--no_ssh", "--node_rank -1: with --no_ssh, number the 3 hosts of the hostfile from 0"),
        ("--no_ssh --node_rank 3 --master_addr a", "--node_rank 3: with --no_ssh"),
        ("--no_ssh --node_rank 1", "--master_addr is missing"),
    ],
)
def test_options_that_cannot_work_are_refused(hosts: Path, options: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        launch(hosts, options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", ["it's", "a&b", "a;b", "$HOME", "a`b`", "a\\b", "a\nb", "%h"])
def test_a_value_that_would_not_arrive_is_refused_where_a_shell_reads_it(hosts: Path, value: str) -> None:
    for options in ("", "--num_nodes 1 --force_multi"):
        with pytest.raises(
            InputError, match=r"^['\"]run=.*: DeepSpeed does not quote .* write the value into the recipe"
        ):
            launch(hosts, options, f"run={value}")
    for options in ("--num_nodes 1", "--launcher impi", NO_SSH):
        launch(hosts, options, f"run={value}")


def test_a_folder_that_the_hosts_would_not_find_is_refused(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my runs").mkdir()
    monkeypatch.chdir(tmp_path / "my runs")
    with pytest.raises(InputError, match="my runs': DeepSpeed does not quote ' ' for the hosts' shells: rename it"):
        launch(hosts, "")


@pytest.mark.parametrize("options", ["", "--exclude b", "--num_nodes 3 --num_gpus=2"])
def test_the_narrowed_command_starts_those_ranks_only(hosts: Path, options: str) -> None:
    command = launch(hosts, f"--master_port 29600 {options}").on(["a", "c"], 3)
    given = runner.parse_args(command[1:])
    slots = {"a": 2, "b": 2, "c": 2}
    resources = runner.parse_inclusion_exclusion(slots, given.include, given.exclude)
    assert dict(runner.apply_num_nodes_and_gpus(resources, given.num_nodes, given.num_gpus)) == {"a": [0, 1], "c": [0]}
    assert (given.master_port, given.force_multi, given.user_script) == (29600, True, "trainer.pretrain")
    assert given.user_args == ["recipe.yaml", "--resume"]


def test_the_address_of_a_host_that_is_left_out_is_not_kept(hosts: Path) -> None:
    launched = launch(hosts, "--master_addr a-ib")
    for names, address in ((["a", "c"], "a-ib"), (["b", "c"], "")):
        assert runner.parse_args(launched.on(names, 3)[1:]).master_addr == address


@pytest.mark.parametrize("name", ["user@b", "fd00::2"])
def test_a_host_that_include_cannot_name_is_refused_where_others_could_be_left_out(hosts: Path, name: str) -> None:
    hosts.write_text(f"a slots=2\n{name} slots=2\n")
    with pytest.raises(InputError, match=f"^{name}: DeepSpeed's --include cannot name this host"):
        launch(hosts, "").require_fewer()
    launch(hosts, NO_SSH).require_fewer()


def printed(hosts: Path, capfd: pytest.CaptureFixture[str], *options: str) -> str:
    """Run DeepSpeed's launcher; return how it called its tool."""
    runner.main(["--hostfile", str(hosts), "--master_addr", "a", *options, *MODULE])
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("ran ")]
    return line.removeprefix("ran ")


@pytest.mark.parametrize(
    ("name", "called", "times"), [("openmpi", "mpirun -n 6 -hostfile ", 1), ("impi", "mpirun -ppn 2 ", 6)]
)
def test_these_start_the_module_on_all_ranks(
    hosts: Path, capfd: pytest.CaptureFixture[str], name: str, called: str, times: int
) -> None:
    line = printed(hosts, capfd, "--launcher", name, "--launcher_args", "-x MASTER_ADDR=a")
    assert line.startswith(called)
    assert " -x MASTER_ADDR=a " in line
    assert line.count("-m trainer.pretrain recipe.yaml --resume") == times  # once per rank, or once for all ranks
    assert launch(hosts, f"--launcher {name}").ranks == 6


@pytest.mark.parametrize(("name", "called"), [("slurm", "srun -n 6 "), ("mpich", "mpirun -n 6 -ppn 2 ")])
def test_these_do_not_and_are_refused(hosts: Path, capfd: pytest.CaptureFixture[str], name: str, called: str) -> None:
    line = printed(hosts, capfd, "--launcher", name)
    assert line.startswith(called)
    # Python takes the module's name for a script, or DeepSpeed's own script for a module
    assert line.partition(" -u ")[2].startswith("trainer.pretrain" if name == "slurm" else "-m /")
    with pytest.raises(InputError) as caught:
        launch(hosts, f"--launcher {name.upper()}")
    assert str(caught.value).startswith(f"--launcher {name}: DeepSpeed starts no --module with it: give ")
    assert WITHOUT_MODULES[name] in str(caught.value)


def test_mpirun_gets_no_file_that_it_cannot_read(hosts: Path) -> None:
    hosts.write_bytes(b"a slots=2\r\nb slots=2\r\n")
    launch(hosts, "")
    with pytest.raises(InputError, match=r"hostfile: mpirun reads no lines that end as in Windows"):
        launch(hosts, "--launcher openmpi")


@pytest.mark.parametrize(("name", "tool"), [("pdsh", "pdsh"), ("openmpi", "ompi_info")])
def test_a_missing_tool_is_refused_where_it_is_needed(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, name: str, tool: str
) -> None:
    hosts.with_name(tool).unlink()
    monkeypatch.setenv("PATH", str(hosts.parent))
    with pytest.raises(InputError, match=f"^--launcher {name}: it is not installed on this host"):
        launch(hosts, f"--launcher {name}")
    for options in (NO_SSH, "--num_nodes 1"):
        launch(hosts, f"--launcher {name} {options}")
