"""What hosts report, asked by ssh, and the choice among them; fake programs answer. Real: launches/test_hosts.py."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

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


def launch(*hosts: str) -> Launch:
    command = ["deepspeed", "--hostfile", "hostfile", "--module", "trainer.pretrain", "recipe.yaml"]
    return Launch(command, 4, {host: range(1) for host in hosts}, None, True)


def test_hosts_answer_or_say_why_not(cluster: Path) -> None:
    facts = gather()
    answer(cluster, "a", facts=facts)
    for name, answered in {"c": "", "d": "Welcome\n", "e": '{"another": 1}\n'}.items():
        (cluster / name).write_text(answered)
    of_a, of_b, *others = ask([*"abcde"]).values()
    assert isinstance(of_a, HostFacts)
    assert replace(of_a, clock=facts.clock) == facts
    assert of_a.clock < 0  # the answer is older than its arrival
    assert of_b == "ssh: connect to host b port 22: No route to host"
    message = "its checkout is another one, or it answers something else: "
    assert others == [f"{message}{answered!r}" for answered in ("", "Welcome", '{"another": 1}')]


def test_the_layout_decides_how_many_hosts_train_of_those_that_answer(cluster: Path, tmp_path: Path) -> None:
    launched, given, two = launch(*"abcd"), recipe(tmp_path), recipe(tmp_path, ranks=2)
    assert choose(launched, given, resumes=False).command == []
    answer(cluster, "a", facts=gather())
    assert choose(launched, two, resumes=False).command == []  # only two ranks will do
    answer(cluster, "b", "d", facts=gather())
    choice = choose(launched, given, resumes=False)
    assert (choice.ranks, choice.all_ranks, list(choice.left_out)) == (2, 4, ["c"])
    assert choice.command[choice.command.index("--include") + 1] == "a:0@b:0"
    answer(cluster, "c", facts=gather())
    assert choose(launched, given, resumes=False) == HostChoice(list(launched.command), 4, 4, {})


def test_a_port_in_use_is_refused_where_it_matters(cluster: Path, tmp_path: Path) -> None:
    taken = replace(gather(), port_is_free=False)
    answer(cluster, "a", "c", facts=gather())
    answer(cluster, "b", facts=taken)
    assert choose(launch("a", "b"), recipe(tmp_path), resumes=False).ranks == 2
    with pytest.raises(InputError, match="^port 29500 of b is in use, perhaps by another run: give deepspeed another"):
        choose(launch("d", "b", "c"), recipe(tmp_path), resumes=False)  # d is dead: b would be the master
    assert choose(launch("d", "b", "c"), recipe(tmp_path), resumes=True).ranks == 2


def test_a_host_with_other_versions_or_too_few_gpus_is_not_fit() -> None:
    other = replace(FACTS, versions={"torch": "1.0", "commit": "def", "numpy": "2.4"})
    assert unfit(other, FACTS, 8, True) == "torch 1.0, not 2.13.0, commit def, not abc, numpy 2.4, not none"
    assert unfit(FACTS, other, 8, True) == "torch 2.13.0, not 1.0, commit abc, not def, numpy none, not 2.4"
    assert unfit(FACTS, FACTS, 8, True) == ""
    few = replace(FACTS, gpus=FACTS.gpus[:7])
    assert unfit(few, FACTS, 8, True) == "7 GPUs for 8 slots"
    assert unfit(few, FACTS, 8, False) == ""


def test_the_most_ranks_divide_lanes_micro_batches_and_workers(tmp_path: Path) -> None:
    plain = recipe(tmp_path)
    check_ranks(plain, 4)
    assert [most_ranks(plain, most) for most in range(6)] == [0, 1, 2, 2, 4, 4]
    workers = recipe(tmp_path, data={"shards": str(tmp_path), "lanes": 4, "window": 2, "workers": 2})
    assert most_ranks(workers, 4) == 2
    assert [most_ranks(recipe(tmp_path, ranks=2), most) for most in (1, 2, 4)] == [0, 2, 2]
    with pytest.raises(InputError, match="4 lanes cannot be shared by 8 ranks"):
        check_ranks(plain, 8)


def test_ask_runs_this_python_in_this_folder(cluster: Path) -> None:
    fake_ssh.write(cluster, '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\necho "$1" >&2\nexit 1\n')
    reason = ask(["a"])["a"]
    assert isinstance(reason, str)
    assert f"{sys.executable} -m deepsiam.trainer.cluster.hosts.facts" in reason
    assert str(Path.cwd())[-20:] in reason


def test_a_banner_in_another_encoding_is_no_error(cluster: Path) -> None:
    (cluster / "a").write_bytes(b"M\xfchle\n" + json.dumps(asdict(FACTS)).encode() + b"\n")
    (answered,) = ask(["a"]).values()
    assert not isinstance(answered, str)
    assert answered.versions == FACTS.versions
    fake_ssh.write(cluster, "#!/bin/sh\nprintf 'M\\374hle is closed' >&2\nexit 1\n")
    assert ask(["a"]) == {"a": "M\ufffdhle is closed"}


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
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    given = [(), (tmp_path, toy.free_port(), recipe, tmp_path / "cache" / "shards")]
    none, facts = (json.loads(toy.run("trainer.cluster.hosts.facts", *words).stdout) for words in given)
    assert none["cache_free"] == 0
    assert facts["files"] == ["run.yaml"]
    assert facts["port_is_free"]
    assert facts["cache_free"] > 0
    assert facts["versions"]["recipe"] == gather(recipe=recipe).versions["recipe"]
