"""The checks before a launch, the network's too: each passes when all is right and fails when something is wrong."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.pretraining.mlm import MlmConfig
from deepsiam.trainer.cluster.hosts import checks, network
from deepsiam.trainer.cluster.hosts.checks import Finding, Numbers, bytes_of
from deepsiam.trainer.cluster.hosts.facts import HostFacts
from deepsiam.trainer.cluster.hosts.network import meet
from deepsiam.trainer.jobs import pretraining
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.models import tiny

GB = 10**9
FACTS = HostFacts(
    {"torch": "2.13.0", "commit": "abc"}, [80 * GB] * 8, 512 * GB, 0.0, 1000 * GB, ["probe"], True, {}, ""
)
TWO = {"a": FACTS, "b": FACTS}


def only(findings: Iterable[Finding]) -> Finding:
    """Return the only finding; one that is not ok says what to do."""
    (finding,) = findings
    assert bool(finding.todo) == (finding.state != "ok")
    return finding


def changed(**changes: Any) -> dict[str, HostFacts]:
    """Return the facts of two hosts; the second host's are changed."""
    return {"a": FACTS, "b": replace(FACTS, **changes)}


def all_trained(number: int) -> Numbers:
    return Numbers(number, number, number)


def recipe(folder: Path, **changes: Any) -> PretrainRecipe:
    """Return a recipe of 4 lanes and 4 micro-batches."""
    given = {"batch": {"size": 16, "micro": 4}, **changes}
    return load(PretrainRecipe, toy.seed_recipe(folder / "recipe.yaml", folder, **given))


def test_all_is_right(tmp_path: Path) -> None:
    plain = recipe(tmp_path)
    right = [
        *checks.answers(TWO),
        *checks.versions(TWO, FACTS),
        *checks.gpus(TWO, {"a": 8, "b": 8}),
        *checks.clocks(TWO),
        *checks.shared(TWO, tmp_path, "probe"),
        *checks.port(TWO, 29500),
        *checks.layout(plain, 4),
        *checks.memory(TWO, {"a": 8, "b": 8}, all_trained(110_000_000), {"zero_optimization": {"stage": 1}}),
        *checks.disk(TWO, plain, all_trained(110_000_000)),
    ]
    assert [finding.state for finding in right] == ["ok"] * 9


def run_folder(files: list[str]) -> Finding:
    return only(checks.shared(changed(files=files), Path("runs"), "probe"))


def versions(**other: str) -> Finding:
    """The second host has other versions, and this one the first's."""
    return only(checks.versions(changed(versions={**FACTS.versions, **other}), FACTS))


WRONG = [
    pytest.param(lambda: only(checks.answers({"a": FACTS, "b": "no route"})), "wrong", "b: no route", id="answer"),
    pytest.param(lambda: versions(torch="2.9.1"), "wrong", "b: torch 2.9.1, not 2.13.0", id="version"),
    pytest.param(lambda: versions(commit="unknown"), "ok", "torch 2.13.0, commit abc", id="no git"),
    pytest.param(lambda: versions(recipe="12ab"), "wrong", "b: recipe 12ab, not none", id="recipe"),
    pytest.param(
        lambda: only(checks.gpus(changed(gpus=[], unseen="NVIDIA GPUs, and ..."), {"a": 8, "b": 8})),
        *("wrong", "b: NVIDIA GPUs, and ..."),
        id="unseen GPUs",
    ),
    pytest.param(lambda: only(checks.clocks(changed(clock=-90.0))), "warning", "b: -90 s from here", id="clock"),
    pytest.param(lambda: run_folder(["another"]), "wrong", "b sees another runs than this host", id="folder"),
    pytest.param(lambda: only(checks.port(changed(port_is_free=False), 7)), "ok", "7 of a is free", id="its port"),
    pytest.param(
        lambda: only(checks.port({"a": replace(FACTS, port_is_free=False)}, 7)),
        *("wrong", "7 of a is in use"),
        id="port of the first",
    ),
]


@pytest.mark.parametrize(("finding", "state", "said"), WRONG)
def test_what_differs_is_named_with_its_host(finding: Callable[[], Finding], state: str, said: str) -> None:
    assert (finding().state, finding().said) == (state, said)


def test_fewer_gpus_than_slots_smaller_ones_or_none() -> None:
    slots = {"a": 8, "b": 8}
    assert only(checks.gpus(changed(gpus=[80 * GB] * 7), slots)).said == "b: 7 GPUs for 8 slots"
    smaller = only(checks.gpus(changed(gpus=[40 * GB] * 8), slots))
    assert (smaller.state, smaller.said) == ("warning", "40 to 80 GB of memory")
    assert only(checks.gpus({"a": replace(FACTS, gpus=[])}, {"a": 1})).state == "warning"


def test_a_layout_that_does_not_divide_names_the_nearest_that_do(tmp_path: Path) -> None:
    finding = only(checks.layout(recipe(tmp_path), 3))
    assert (finding.state, finding.todo) == ("wrong", "use 2 or 4 ranks")
    assert only(checks.layout(recipe(tmp_path), 8)).todo == "use 4 ranks"
    expected = only(checks.layout(recipe(tmp_path, ranks=2), 4))
    assert expected.said == "ranks: 2 are expected, and the hosts have 4"


def test_too_little_room_for_checkpoints(tmp_path: Path) -> None:
    plain = recipe(tmp_path)  # keeps 2 checkpoints, so that three of 1.8 GB exist during a save
    assert only(checks.disk(changed(free=5 * GB), plain, all_trained(100_000_000))).state == "wrong"
    assert only(checks.disk(TWO, plain, all_trained(100_000_000))).said.endswith("; the run writes 2, 3.6 GB in all")
    assert only(checks.disk(changed(free=6 * GB), plain, all_trained(100_000_000))).state == "warning"
    averaged = recipe(tmp_path, optimizer={"lr": 1e-3, "ema": 0.999})  # 0.4 GB more in each
    assert only(checks.disk(TWO, averaged, all_trained(100_000_000))).said.endswith("; the run writes 2, 4.4 GB in all")
    kept = recipe(tmp_path, steps=8, checkpoint={"every": 4, "keep_every": 4})  # also two permanent ones: 9 GB in all
    finding = only(checks.disk(changed(free=8 * GB), kept, all_trained(100_000_000)))
    assert finding.state == "wrong"
    assert "3.6 GB for 2 that are kept for good" in finding.said
    changes = {"trunk": toy.TRUNK, "probe": {"split": "dev", "every": 1}, "checkpoint": {"keep_best": "ndcg@10"}}
    best = load(FinetuneRecipe, toy.finetune_recipe(tmp_path / "best.yaml", tmp_path, **changes))
    assert "and 800.0 MB for the best weights; " in only(checks.disk(TWO, best, all_trained(100_000_000))).said


@pytest.mark.parametrize(
    ("memory", "stage", "state", "todo"),
    [
        (80, 1, "ok", ""),
        (6, 1, "wrong", "set deepspeed to a file of ZeRO-2"),
        (6, 2, "ok", ""),
        (4, 2, "wrong", "set deepspeed to a file of ZeRO-3"),
        (2, 3, "wrong", "use more ranks or a smaller trunk"),
    ],
)
def test_memory_advises_the_first_stage_that_fits(memory: int, stage: int, state: str, todo: str) -> None:
    # a billion parameters on 8 ranks, bf16: 5.5, 3.75 and 2 GB
    facts = {"a": replace(FACTS, gpus=[memory * GB] * 8)}
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    finding = only(checks.memory(facts, {"a": 8}, all_trained(1_000_000_000), config))
    assert (finding.state, finding.todo) == (state, todo)


LORA = Numbers(total=1_500_000_000, trained=10_000_000, saved=10_000_000)


def test_frozen_weights_have_no_gradients_nor_states(tmp_path: Path) -> None:
    facts = {"a": replace(FACTS, gpus=[4 * GB])}
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
    averaged = only(checks.memory(facts, {"a": 1}, all_trained(10**8), config, averaged=True)).said
    assert averaged != only(checks.memory(facts, {"a": 1}, all_trained(10**8), config)).said
    finding = only(checks.memory(facts, {"a": 1}, LORA, config))
    # 2 bytes of each, and 14 more of each that is trained
    assert (finding.state, finding.said[:13]) == ("ok", "ZeRO-1 3.1 GB")
    assert only(checks.memory(facts, {"a": 1}, all_trained(LORA.total), config)).state == "wrong"
    # three checkpoints of 18 bytes of each that is trained
    assert ", 540.0 MB for 3 checkpoints" in only(checks.disk(TWO, recipe(tmp_path), LORA)).said


@pytest.mark.parametrize("key", ["offload_optimizer", "offload_param"])
def test_what_is_offloaded_is_not_counted_and_refuses_nothing(key: str) -> None:
    facts = {"a": replace(FACTS, gpus=[4 * GB])}
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, key: {"device": "cpu"}}}
    finding = only(checks.memory(facts, {"a": 1}, all_trained(1_000_000_000), config))
    assert finding.state == "warning"
    assert finding.said.endswith(f"the layers' activations are not counted, nor is {key}")
    config["zero_optimization"][key] = {"device": "none"}
    assert only(checks.memory(facts, {"a": 1}, all_trained(1_000_000_000), config)).state == "wrong"


def test_the_numbers_of_a_model_with_adapters() -> None:
    model = build_model(MlmConfig(name="mlm", max_tokens=16), build_trunk(tiny.CONFIG))
    whole = sum(parameter.numel() for parameter in model.parameters())
    assert Numbers.from_model(model) == (whole, whole, whole)
    first, *_ = dict(model.named_parameters())
    parameter = dict(model.named_parameters())[first].requires_grad_(False)
    model.from_base = frozenset([first])
    assert Numbers.from_model(model) == (whole, whole - parameter.numel(), whole - parameter.numel())


def test_the_bytes_of_each_stage_are_those_of_the_paper() -> None:
    # Rajbhandari et al., 2020, table 1: 7.5 billion parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB
    sizes = [bytes_of(stage, True, 7_500_000_000, 64) / GB for stage in range(4)]
    assert sizes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)
    assert [bytes_of(stage, False, 100, 4) for stage in range(4)] == [1600, 1000, 700, 400]
    # sums in fp32: 4 bytes beside the gradients' 2, or, once they are partitioned, in place of these
    assert [bytes_of(stage, True, 100, 4, sums=True) for stage in range(4)] == [2000, 1100, 600, 450]
    assert [bytes_of(stage, True, 100, 4, averaged=True) for stage in range(4)] == [2000, 800, 650, 500]


@pytest.mark.parametrize("where", ["", "file://"])
def test_shards_are_compared_with_the_manifest_here_and_far_away(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr("deepsiam.data_prep.common.urls.PAUSES", ())
    copy = Path(shutil.copytree(shards, tmp_path / "shards"))
    keys = {"shards": f"{where}{copy}", "lanes": 4, "cache": str(tmp_path / "cache")}

    def finding(full: bool) -> Finding:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        return only(checks.shards(shard_data(recipe(tmp_path, data=keys)).order.sources, full))

    assert (finding(False).state, finding(True).state) == ("ok", "ok")
    for number, full in ((1, True), (0, False)):  # the second is not in a sample of three shards
        assert finding(False).state == "ok"
        damaged = copy / f"shard-00000{number}.tar"
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
        assert finding(full).state == "wrong"
        assert damaged.name in finding(full).said


def test_too_little_room_for_remote_shards(shards: Path, tmp_path: Path) -> None:
    far = {"lanes": 4, "cache": str(tmp_path / "cache")}
    local = shard_data(recipe(tmp_path, data={"shards": str(shards), "lanes": 4})).order.sources
    assert list(checks.cache(TWO, local)) == []
    remote = shard_data(recipe(tmp_path, data={"shards": f"file://{shards}", **far})).order.sources
    size = sum(path.stat().st_size for path in shards.glob("*.tar"))
    few = changed(cache_free=size - 1) | {"a": replace(FACTS, cache_free=size)}
    finding = only(checks.cache(few, remote))
    assert (finding.state, finding.said.split(",")[0].split()[-1]) == ("warning", "b")
    assert only(checks.cache({"a": few["a"]}, remote)).state == "ok"
    limited = shard_data(recipe(tmp_path, data={"shards": f"file://{shards}", **far, "cache_bytes": size // 2}))
    assert only(checks.cache(few, limited.order.sources)).state == "ok"


@pytest.fixture
def job(shards: Path, tmp_path: Path) -> Job:
    """The job of a toy recipe."""
    return pretraining.build(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", shards)))


def tried(job: Job, dtype: torch.dtype = torch.float32) -> Finding:
    return only(checks.micro_batch(job.model, job.order, job.recipe.methods, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_example_of_the_run_is_computed(job: Job, dtype: torch.dtype) -> None:
    assert tried(job, dtype).said == "1 example computed here"
    assert all(parameter.grad is not None for parameter in job.model.parameters())


@pytest.mark.parametrize(
    ("error", "said"),
    [(torch.OutOfMemoryError("CUDA out of memory"), "do not fit this GPU"), (InputError("a: damaged"), "a: damaged")],
    ids=["memory", "data"],
)
def test_a_micro_batch_that_fails_is_wrong(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    monkeypatch.setattr(checks, "on_device", Mock(side_effect=error))
    finding = tried(job)
    assert finding.state == "wrong"
    assert said in finding.said


INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.1"], "docker0": ["172.17.0.1"], "ib0": ["10.1.0.1"]}
NET = HostFacts({}, [], 0, 0.0, 0, [], True, INTERFACES, "10.0.0.1")
NETS = {"a": NET, "b": NET}
GPUS = {host: replace(facts, gpus=[80]) for host, facts in NETS.items()}


@pytest.mark.parametrize(
    ("hosts", "variables", "said"),
    [
        (NETS, {}, "gloo over eth0"),
        (NETS, {"GLOO_SOCKET_IFNAME": "ib0,eth0"}, "gloo over ib0, eth0"),
        (NETS, {"NCCL_SOCKET_IFNAME": "none"}, "gloo over eth0"),
        ({"a": NET, "b": replace(NET, own_address="10.1.0.1")}, {}, "gloo over a eth0; b ib0"),
        ({"a": replace(NET, own_address="127.0.1.1")}, {}, "gloo over lo"),  # a single host reaches itself
        (GPUS, {}, "NCCL over eth0, ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "eth,ib"}, "NCCL over eth0, ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "=ib0"}, "NCCL over ib0"),
        (GPUS, {"NCCL_SOCKET_IFNAME": "^lo,docker"}, "NCCL over eth0, ib0"),
    ],
)
def test_the_interface_is_the_one_that_the_backend_chooses(
    hosts: dict[str, HostFacts], variables: dict[str, str], said: str
) -> None:
    finding = only(network.interface(hosts, variables))
    assert (finding.state, finding.said) == ("ok", said)


@pytest.mark.parametrize(
    ("hosts", "name", "value"),
    [
        (NETS, "GLOO_SOCKET_IFNAME", "eth1"),
        (NETS, "GLOO_SOCKET_IFNAME", "eth"),
        (GPUS, "NCCL_SOCKET_IFNAME", "=eth"),
        (GPUS, "NCCL_SOCKET_IFNAME", "mlx"),
    ],
)
def test_an_interface_that_hosts_lack(hosts: dict[str, HostFacts], name: str, value: str) -> None:
    findings = list(network.interface(hosts, {name: value}))
    assert [finding.state for finding in findings] == ["wrong", "wrong"]
    assert findings[1].said == f"b: {name}={value}, and it has docker0, eth0, ib0, lo"


def test_an_interface_that_one_host_lacks() -> None:
    other = replace(NET, interfaces={"lo": ["127.0.0.1"], "eth9": ["10.0.0.2"]})
    finding = only(network.interface({"a": NET, "b": other}, {"GLOO_SOCKET_IFNAME": "eth0"}))
    assert (finding.state, finding.said) == ("wrong", "b: GLOO_SOCKET_IFNAME=eth0, and it has eth9, lo")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_a_name_of_the_loopback_address_on_several_hosts(address: str) -> None:
    finding = only(network.interface({"a": NET, "b": replace(NET, own_address=address)}, {}))
    assert (finding.state, finding.said) == ("warning", "b: gloo would use lo, which no other host reaches")
    assert finding.todo.startswith("set GLOO_SOCKET_IFNAME=eth0 ")  # each host's docker0 has the same address


def test_the_advised_interface_is_one_of_all_hosts() -> None:
    several = {"lo": ["127.0.0.1"], "eno1": ["10.1.0.1"], "eth0": ["10.0.0.1"], "eth1": [], "veth3": ["10.3.0.1"]}
    facts = {"a": replace(NET, interfaces=several, own_address="127.0.1.1"), "b": NET}
    assert only(network.interface(facts, {})).todo.startswith("set GLOO_SOCKET_IFNAME=eth0 ")
    alone = replace(NET, interfaces={"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]}, own_address="127.0.1.1")
    assert only(network.interface({"a": alone, "b": NET}, {})).todo.startswith("set GLOO_SOCKET_IFNAME=NAME ")


def launcher(folder: Path, script: str) -> list[str]:
    (folder / "launcher.py").write_text(script)
    return [sys.executable, str(folder / "launcher.py")]


def test_what_the_ranks_print_is_found_among_other_lines(tmp_path: Path) -> None:
    # prints its arguments in the place of the address
    script = """
import sys
print("[2026-01-01] [INFO] [launch.py:1:main] started")
print("10.0.0.1: the ranks met at " + " ".join(sys.argv[1:]))
print("10.0.0.1: [INFO] [launch.py:2:main] Process 7 exits successfully.")
"""
    finding = meet(launcher(tmp_path, script))
    said = "the ranks met at --module deepsiam.trainer.training.engine.all_reduce"
    assert (finding.state, finding.said, finding.todo) == ("ok", said, "")


def test_a_launch_that_fails_is_explained_by_its_last_line(tmp_path: Path) -> None:
    script = """
print("b: all_reduce: rank 1: port 29500 is in use")
print("b: [INFO] [launch.py:1:sigkill_handler] Killing subprocess 7")
print("pdsh@a: b: ssh exited with exit code 2")
raise SystemExit(2)
"""
    finding = only([meet(launcher(tmp_path, script))])
    assert (finding.state, finding.said) == ("wrong", "b: all_reduce: rank 1: port 29500 is in use")
    assert meet(launcher(tmp_path, "raise SystemExit(1)")).said == "the launcher ended without a word"


def test_a_launch_that_hangs_is_ended_with_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    monkeypatch.setattr(network, "LAUNCH_SECONDS", 3)
    assert meet(launcher(tmp_path, script)).said == "the ranks did not end in 3 s"
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail("the launcher's child is still running")
