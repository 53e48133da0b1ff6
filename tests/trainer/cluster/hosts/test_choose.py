"""What hosts report, asked by ssh, and the choice among them; fake programs answer. Real: launches/test_hosts.py."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.choose import HostChoice, check_ranks, choose, most_ranks, unfit
from deepsiam.trainer.cluster.hosts.facts import HostFacts, ask, gather
from deepsiam.trainer.cluster.hosts.launch import Launch
from tests import toy
from tests.trainer.cluster.hosts import fake_ssh
from tests.trainer.cluster.hosts.fake_ssh import answer
from tests.trainer.cluster.hosts.test_checks import FACTS, recipe


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first in PATH, with a fake ssh; a host's answer is the file of its name."""
    fake_ssh.write(tmp_path, fake_ssh.ANSWERS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def launch(*hosts: str, slots: int = 1) -> Launch:
    command = ["deepspeed", "--hostfile", "hostfile", "--module", "trainer.pretrain", "recipe.yaml"]
    return Launch(command, 4, {host: range(slots) for host in hosts}, None, True)


def test_facts_travel_as_json() -> None:
    facts = gather()
    assert HostFacts(**json.loads(json.dumps(asdict(facts)))) == facts


@pytest.mark.parametrize("answered", ["", "Welcome\n", '{"another": 1}\n'])
def test_a_host_that_answers_something_else_is_named(cluster: Path, answered: str) -> None:
    (cluster / "a").write_text(answered)
    assert str(ask(["a"])["a"]).startswith("its checkout is another one, or it answers something else")


def test_hosts_answer_or_say_why_not(cluster: Path) -> None:
    facts = gather()
    answer(cluster, "a", facts=facts)
    told = ask(["a", "b"])
    assert isinstance(told["a"], HostFacts)
    assert replace(told["a"], clock=facts.clock) == facts
    assert told["a"].clock < 0  # the answer is older than its arrival
    assert told["b"] == "ssh: connect to host b port 22: No route to host"


def test_with_all_hosts_the_command_is_the_one_that_was_typed(cluster: Path, tmp_path: Path) -> None:
    answer(cluster, *"abcd", facts=gather())
    launched = launch(*"abcd")
    assert choose(launched, recipe(tmp_path), resumes=False) == HostChoice(list(launched.command), 4, 4, {})


def test_without_one_the_layout_decides_how_many_of_the_others(cluster: Path, tmp_path: Path) -> None:
    answer(cluster, *"abd", facts=gather())
    choice = choose(launch(*"abcd"), recipe(tmp_path), resumes=False)
    assert (choice.ranks, choice.all_ranks, list(choice.left_out)) == (2, 4, ["c"])
    assert choice.command[choice.command.index("--include") + 1] == "a:0@b:0"


def test_without_enough_hosts_nothing_starts(cluster: Path, tmp_path: Path) -> None:
    assert choose(launch(*"ab"), recipe(tmp_path), resumes=False).command == []
    answer(cluster, "a", facts=gather())
    assert choose(launch(*"ab"), recipe(tmp_path, ranks=2), resumes=False).command == []  # only two ranks will do


def test_a_port_in_use_is_refused_where_it_matters(cluster: Path, tmp_path: Path) -> None:
    taken = replace(gather(), port_is_free=False)
    answer(cluster, "a", "c", facts=gather())
    answer(cluster, "b", facts=taken)
    assert choose(launch("a", "b"), recipe(tmp_path), resumes=False).ranks == 2
    with pytest.raises(InputError, match="^port 29500 of b is in use, perhaps by another run: give deepspeed another"):
        choose(launch("d", "b", "c"), recipe(tmp_path), resumes=False)  # d is dead: b would be the master
    assert choose(launch("d", "b", "c"), recipe(tmp_path), resumes=True).ranks == 2


def test_a_host_with_other_versions_or_too_few_gpus_is_not_fit() -> None:
    here = gather()
    other = replace(here, versions={**here.versions, "torch": "1.0", "commit": "abc"})
    assert unfit(other, here, 1, False) == (
        f"commit abc, not {here.versions['commit']}, torch 1.0, not {here.versions['torch']}"
    )
    assert unfit(here, here, 8, False) == ""
    assert unfit(replace(here, gpus=[80 << 30] * 7), here, 8, True) == "7 GPUs for 8 slots"
    assert unfit(replace(here, gpus=[80 << 30] * 8), here, 8, True) == ""


def test_the_most_ranks_divide_lanes_micro_batches_and_workers(tmp_path: Path) -> None:
    plain = recipe(tmp_path)
    assert [most_ranks(plain, most) for most in range(6)] == [0, 1, 2, 2, 4, 4]
    workers = recipe(tmp_path, data={"shards": str(tmp_path), "lanes": 4, "window": 2, "workers": 2})
    assert most_ranks(workers, 4) == 2
    assert [most_ranks(recipe(tmp_path, ranks=2), most) for most in (1, 2, 4)] == [0, 2, 2]


def test_a_launch_that_the_recipe_does_not_allow_is_refused(tmp_path: Path) -> None:
    check_ranks(recipe(tmp_path), 4)
    with pytest.raises(InputError, match="ranks: 2 are expected, and the hosts have 4"):
        check_ranks(recipe(tmp_path, ranks=2), 4)
    with pytest.raises(InputError, match="4 lanes cannot be shared by 8 ranks"):
        check_ranks(recipe(tmp_path), 8)


def test_ask_runs_this_python_in_this_folder(cluster: Path) -> None:
    (cluster / "ssh").write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\necho "$1" >&2\nexit 1\n')
    reason = ask(["a"])["a"]
    assert isinstance(reason, str)
    assert f"{sys.executable} -m deepsiam.trainer.cluster.hosts.facts" in reason
    assert str(Path.cwd())[-20:] in reason


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of ssh; it prints the bytes of the file beside it, and ends with the code of another."""
    (tmp_path / "ssh").write_text(
        f"#!/bin/sh\ncat {tmp_path}/said\ncat {tmp_path}/said >&2\nexit $(cat {tmp_path}/code)\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_banner_in_another_encoding_is_no_error(ssh: Path) -> None:
    (ssh / "said").write_bytes(b"M\xfchle\n" + json.dumps(asdict(FACTS)).encode() + b"\n")
    (answer,) = ask(["a"]).values()
    assert not isinstance(answer, str)
    assert answer.versions == FACTS.versions
    (ssh / "code").write_text("1")
    (ssh / "said").write_bytes(b"M\xfchle is closed\n")
    assert ask(["a"]) == {"a": "M\ufffdhle is closed"}


def told(*of: object) -> dict[str, Any]:
    done = toy.run("trainer.cluster.hosts.facts", *of)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_recipe_is_known_by_its_values_and_those_that_it_extends(tmp_path: Path) -> None:
    below = toy.write_recipe(tmp_path / "below.yaml", seed=1)
    above = toy.write_recipe(tmp_path / "above.yaml", extends="below.yaml", steps=2)
    before = gather(recipe=above).versions["recipe"]
    assert before == gather(recipe=above).versions["recipe"]
    toy.write_recipe(below, seed=3)
    assert gather(recipe=above).versions["recipe"] != before
    below.unlink()
    assert gather(recipe=above).versions["recipe"] == "unreadable"
    assert "recipe" not in gather().versions


def test_a_package_that_one_checkout_does_not_compare_differs() -> None:
    newer = replace(FACTS, versions={**FACTS.versions, "numpy": "2.4"})
    assert newer.differ_from(FACTS) == "numpy 2.4, not none"
    assert FACTS.differ_from(newer) == "numpy none, not 2.4"


def test_all_that_decides_the_numbers_is_compared() -> None:
    decides = {"Python", "commit", "code", "torch", "numpy", "tokenizers", "deepspeed", "transformers", "webdataset"}
    assert gather().versions.keys() >= decides


def test_a_host_that_trains_on_its_cpu_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: SimpleNamespace(total_memory=8 << 30))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert gather().gpus == []
    monkeypatch.delenv("DS_ACCELERATOR")
    assert gather().gpus == [8 << 30] * 2


def test_the_command_takes_none_or_all_of_its_arguments(shards: Path, tmp_path: Path) -> None:
    assert told()["cache_free"] == 0
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    facts = told(tmp_path, toy.free_port(), recipe, tmp_path / "cache" / "shards")
    assert facts["files"] == ["run.yaml"]
    assert facts["port_is_free"]
    assert facts["cache_free"] > 0
    assert facts["versions"]["recipe"] == gather(recipe=recipe).versions["recipe"]
