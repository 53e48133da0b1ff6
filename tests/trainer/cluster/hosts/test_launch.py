"""Launches: the hosts that a deepspeed command line chooses, and the same command on fewer of them."""

from pathlib import Path

import pytest
from deepspeed.launcher import runner

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.launch import Launch


@pytest.fixture
def hostfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def chosen(hostfile: Path, *options: str) -> dict[str, list[int]]:
    launched = launch("--hostfile", str(hostfile), *options)
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
    hostfile: Path, options: tuple[str, ...], expected: dict[str, list[int]]
) -> None:
    assert chosen(hostfile, *options) == expected


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
def test_what_names_no_hosts_is_refused(hostfile: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        chosen(hostfile, *options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", ["it's", "a&b", "a;b", "$HOME", "a`b`", "a\\b", "a\nb", "%h"])
def test_a_value_that_would_not_arrive_is_refused_where_a_shell_reads_it(hostfile: Path, value: str) -> None:
    def launched(*options: str) -> Launch | None:
        command = ["deepspeed", "-H", str(hostfile), *options, "--module", "trainer.pretrain", "r.yaml", f"run={value}"]
        return Launch.from_command(command, command.index("trainer.pretrain"))

    for options in [(), ("--num_nodes", "1", "--force_multi")]:
        with pytest.raises(
            InputError, match=r"^['\"]run=.*: DeepSpeed does not quote .* write the value into the recipe"
        ):
            launched(*options)
    for options in [("--num_nodes", "1"), ("--launcher", "impi"), ("--no_ssh", "--node_rank=0", "--master_addr=a")]:
        assert launched(*options)


def test_a_folder_that_the_hosts_would_not_find_is_refused(
    hostfile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my runs").mkdir()
    monkeypatch.chdir(tmp_path / "my runs")
    with pytest.raises(InputError, match="my runs': DeepSpeed does not quote ' ' for the hosts' shells: rename it"):
        launch("-H", str(hostfile))


@pytest.mark.parametrize("options", [(), ("--exclude", "b"), ("--num_nodes", "3", "--num_gpus=2")])
def test_the_narrowed_command_starts_those_ranks_only(hostfile: Path, options: tuple[str, ...]) -> None:
    launched = launch("--hostfile", str(hostfile), "--master_port", "29600", *options)
    assert launched
    command = launched.on(["a", "c"], 3)
    given = runner.parse_args(command[1:])
    slots = {"a": 2, "b": 2, "c": 2}
    resources = runner.parse_inclusion_exclusion(slots, given.include, given.exclude)
    assert dict(runner.apply_num_nodes_and_gpus(resources, given.num_nodes, given.num_gpus)) == {"a": [0, 1], "c": [0]}
    assert (given.master_port, given.force_multi, given.user_script) == (29600, True, "trainer.pretrain")
    assert given.user_args == ["recipe.yaml", "--resume"]


def test_the_address_of_a_host_that_is_left_out_is_not_kept(hostfile: Path) -> None:
    launched = launch("--hostfile", str(hostfile), "--master_addr", "a-ib")
    assert launched
    for hosts, address in ((["a", "c"], "a-ib"), (["b", "c"], "")):
        assert runner.parse_args(launched.on(hosts, 3)[1:]).master_addr == address


@pytest.mark.parametrize("name", ["user@b", "fd00::2"])
def test_a_host_that_include_cannot_name_is_refused_where_others_could_be_left_out(hostfile: Path, name: str) -> None:
    hostfile.write_text(f"a slots=2\n{name} slots=2\n")
    launched = launch("-H", str(hostfile))
    assert launched
    with pytest.raises(InputError, match=f"^{name}: DeepSpeed's --include cannot name this host"):
        launched.require_fewer()
    without_ssh = launch("-H", str(hostfile), "--no_ssh", "--node_rank", "0", "--master_addr", "a")
    assert without_ssh
    without_ssh.require_fewer()


def test_neither_a_scheduler_nor_this_host_alone_needs_ssh(hostfile: Path) -> None:
    by_ssh = {}
    without_ssh = ("--no_ssh", "--node_rank", "0", "--master_addr", "a")
    for options in [(), ("--launcher", "impi"), without_ssh, ("--num_nodes", "1")]:
        launched = launch("-H", str(hostfile), *options)
        assert launched
        by_ssh[options[:1]] = launched.by_ssh
    assert by_ssh == {(): True, ("--launcher",): False, ("--no_ssh",): False, ("--num_nodes",): False}
