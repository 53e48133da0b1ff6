"""The checks before a launch, the network's too: each passes when all is right and fails when something is wrong."""

import shutil
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
INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.1"], "docker0": ["172.17.0.1"], "ib0": ["10.1.0.1"]}
VERSIONS = {"torch": "2.13.0", "commit": "abc"}
FACTS = HostFacts(
    VERSIONS, [80 * GB] * 8, 512 * GB, 0.0, 1000 * GB, ["probe"], True, INTERFACES, own_address="10.0.0.1"
)
TWO = {"a": FACTS, "b": FACTS}
EIGHT = {"a": 8, "b": 8}
LORA = Numbers(total=1_500_000_000, trained=10_000_000, saved=10_000_000)
Findings = Iterable[Finding]


def only(findings: Findings) -> Finding:
    """Return the only finding; one that is not ok says what to do."""
    (finding,) = findings
    assert bool(finding.todo) == (finding.state != "ok")
    return finding


def changed(**changes: Any) -> dict[str, HostFacts]:
    """Return the facts of two hosts; the second host's are changed."""
    return {"a": FACTS, "b": replace(FACTS, **changes)}


def alone(**changes: Any) -> dict[str, HostFacts]:
    """Return the facts of one host, changed."""
    return {"a": replace(FACTS, **changes)}


def all_trained(number: int) -> Numbers:
    return Numbers(number, number, number)


def recipe(folder: Path, **changes: Any) -> PretrainRecipe:
    """Return a recipe of 4 lanes and 4 micro-batches, which keeps 2 checkpoints."""
    given = {"batch": {"size": 16, "micro": 4}, **changes}
    return load(PretrainRecipe, toy.seed_recipe(folder / "recipe.yaml", folder, **given))


def versions(**other: str) -> Findings:
    """The second host has other versions, and this one the first's."""
    return checks.versions(changed(versions={**VERSIONS, **other}), FACTS)


def disk(folder: Path, *, free: int = 1000, **changes: Any) -> Findings:
    """Three checkpoints of 1.8 GB exist during a save; the second host has so many GB free."""
    return checks.disk(changed(free=free * GB), recipe(folder, **changes), all_trained(100_000_000))


def best(folder: Path) -> Findings:
    """A fine-tuning keeps its best weights, too."""
    changes = {"trunk": toy.TRUNK, "probe": {"split": "dev", "every": 1}, "checkpoint": {"keep_best": "ndcg@10"}}
    kept = load(FinetuneRecipe, toy.finetune_recipe(folder / "best.yaml", folder, **changes))
    return checks.disk(TWO, kept, all_trained(100_000_000))


def memory(room: int, stage: int, numbers: Numbers, ranks: int = 1, *, averaged: bool = False, **zero: Any) -> Findings:
    """Ranks of one host, with so many GB each, train in bf16."""
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage, **zero}}
    return checks.memory(alone(gpus=[room * GB] * ranks), {"a": ranks}, numbers, config, averaged=averaged)


def interface(hosts: dict[str, HostFacts], gpus: int = 0, **variables: str) -> Findings:
    hosts = {host: replace(facts, gpus=[80] * gpus) for host, facts in hosts.items()}
    return network.interface(hosts, variables)


def offload(kind: str, device: str) -> Findings:
    return memory(4, 3, BILLION, **{kind: {"device": device}})


def advised(**interfaces: list[str]) -> Findings:
    """The first host has these interfaces, and the loopback address as its own."""
    return interface({**alone(interfaces={"lo": ["127.0.0.1"], **interfaces}, own_address="127.0.1.1"), "b": FACTS})


NO_OTHER = "gloo would use lo, which no other host reaches"
BILLION = all_trained(10**9)  # on 8 ranks, by stage: 5.5, 3.75 and 2 GB
ETH9 = {"lo": ["127.0.0.1"], "eth9": ["10.0.0.2"]}
ETH0 = "set GLOO_SOCKET_IFNAME=eth0 "  # each host's docker0 has the same address
FOUND: list[tuple[Callable[[Path], Findings], str, str, str]] = [  # the state, the end of what is said, what to do
    (lambda f: checks.answers(TWO), "ok", "2 answer", ""),
    (lambda f: checks.answers({"a": FACTS, "b": "no route"}), "wrong", "b: no route", "fix that"),
    (lambda f: versions(torch="2.9.1"), "wrong", "b: torch 2.9.1, not 2.13.0", "use one checkout"),
    (lambda f: versions(commit="unknown"), "ok", "torch 2.13.0, commit abc", ""),  # no git
    (lambda f: versions(recipe="12ab"), "wrong", "b: recipe 12ab, not none", "use one"),
    (lambda f: checks.gpus(TWO, EIGHT), "ok", "16 of 80 GB", ""),
    (lambda f: checks.gpus(changed(gpus=[], unseen="NVIDIA GPUs"), EIGHT), "wrong", "b: NVIDIA GPUs", "or set DS_"),
    (lambda f: checks.gpus(changed(gpus=[80 * GB] * 7), EIGHT), "wrong", "b: 7 GPUs for 8 slots", "lower slots="),
    (lambda f: checks.gpus(changed(gpus=[40 * GB] * 8), EIGHT), "warning", "40 to 80 GB of memory", "batch.micro"),
    (lambda f: checks.gpus(alone(gpus=[]), {"a": 1}), "warning", "training on CPUs", "see nvidia-smi"),
    (lambda f: checks.clocks(changed(clock=5.0)), "ok", "within 5 s", ""),
    (lambda f: checks.clocks(changed(clock=-90.0)), "warning", "b: -90 s from here", "set it by NTP"),
    (lambda f: checks.shared(TWO, Path("runs"), "probe"), "ok", "all hosts see runs", ""),
    (lambda f: checks.shared(changed(files=["x"]), Path("runs"), "probe"), "wrong",
     "b sees another runs than this host", "put `run` on"),
    (lambda f: checks.port(changed(port_is_free=False), 7), "ok", "7 of a is free", ""),  # that of the first counts
    (lambda f: checks.port(alone(port_is_free=False), 7), "wrong", "7 of a is in use", "give deepspeed another"),
    (lambda f: checks.layout(recipe(f), 4), "ok", "ranks: 4, lanes: 4, gradient accumulation: 1", ""),
    (lambda f: checks.layout(recipe(f), 3), "wrong", "", "use 2 or 4 ranks"),
    (lambda f: checks.layout(recipe(f), 8), "wrong", "", "use 4 ranks"),
    (lambda f: checks.layout(recipe(f, ranks=2), 4), "wrong", "ranks: 2 are expected, and the hosts have 4", "use 2"),
    (lambda f: disk(f), "ok", "5.4 GB for 3 checkpoints; the run writes 2, 3.6 GB in all", ""),
    (lambda f: disk(f, free=6), "warning", "", "free some space"),
    (lambda f: disk(f, free=5), "wrong", "", "free some space"),
    # 0.4 GB more in each
    (lambda f: disk(f, optimizer={"lr": 1e-3, "ema": 0.999}), "ok", "; the run writes 2, 4.4 GB in all", ""),
    (lambda f: disk(f, free=8, steps=8, checkpoint={"every": 4, "keep_every": 4}), "wrong",  # 9 GB in all
     "3.6 GB for 2 that are kept for good; the run writes 2, 3.6 GB in all", "free some space"),
    (best, "ok", "and 800.0 MB for the best weights; the run writes 1, 1.8 GB in all", ""),
    # 18 bytes of each that is trained
    (lambda f: checks.disk(TWO, recipe(f), LORA), "ok",
     "540.0 MB for 3 checkpoints; the run writes 2, 360.0 MB in all", ""),
    (lambda f: memory(80, 1, BILLION, 8), "ok", "are not counted", ""),
    (lambda f: memory(6, 1, BILLION, 8), "wrong", "", "set deepspeed to a file of ZeRO-2"),
    (lambda f: memory(6, 2, BILLION, 8), "ok", "", ""),
    (lambda f: memory(4, 2, BILLION, 8), "wrong", "", "set deepspeed to a file of ZeRO-3"),
    (lambda f: memory(2, 3, BILLION, 8), "wrong", "", "use more ranks or a smaller trunk"),
    # 2 bytes of each, and 14 more of each that is trained
    (lambda f: memory(4, 1, LORA), "ok",
     "ZeRO-1 3.1 GB, ZeRO-2 3.1 GB, ZeRO-3 3.1 GB, of 4.0 GB of a rank; the layers' activations are not counted", ""),
    (lambda f: memory(4, 1, all_trained(LORA.total)), "wrong", "", "use more ranks"),
    (lambda f: memory(4, 1, all_trained(10**8), averaged=True), "ok",
     "ZeRO-1 2.0 GB, ZeRO-2 2.0 GB, ZeRO-3 2.0 GB, of 4.0 GB of a rank; the layers' activations are not counted", ""),
    (lambda f: offload("offload_optimizer", "cpu"), "warning", "are not counted, nor is offload_optimizer", "try it"),
    (lambda f: offload("offload_param", "cpu"), "warning", "are not counted, nor is offload_param", "try it"),
    (lambda f: offload("offload_param", "none"), "wrong", "are not counted", "use more ranks"),
    (lambda f: interface(TWO), "ok", "gloo over eth0", ""),
    (lambda f: interface(TWO, GLOO_SOCKET_IFNAME="ib0,eth0"), "ok", "gloo over ib0, eth0", ""),
    (lambda f: interface(TWO, NCCL_SOCKET_IFNAME="none"), "ok", "gloo over eth0", ""),
    (lambda f: interface(changed(own_address="10.1.0.1")), "ok", "gloo over a eth0; b ib0", ""),
    (lambda f: interface(alone(own_address="127.0.1.1")), "ok", "gloo over lo", ""),  # a single host reaches itself
    (lambda f: interface(TWO, 1), "ok", "NCCL over eth0, ib0", ""),
    (lambda f: interface(TWO, 1, NCCL_SOCKET_IFNAME="eth,ib"), "ok", "NCCL over eth0, ib0", ""),
    (lambda f: interface(TWO, 1, NCCL_SOCKET_IFNAME="=ib0"), "ok", "NCCL over ib0", ""),
    (lambda f: interface(TWO, 1, NCCL_SOCKET_IFNAME="^lo,docker"), "ok", "NCCL over eth0, ib0", ""),
    (lambda f: interface(alone(), GLOO_SOCKET_IFNAME="eth"), "wrong",
     "a: GLOO_SOCKET_IFNAME=eth, and it has docker0, eth0, ib0, lo", "set GLOO_SOCKET_IFNAME to one that all hosts"),
    (lambda f: interface(alone(), 1, NCCL_SOCKET_IFNAME="=eth"), "wrong", "", "set NCCL_"),
    (lambda f: interface(alone(), 1, NCCL_SOCKET_IFNAME="mlx"), "wrong", "", "set NCCL_"),
    (lambda f: interface(changed(interfaces=ETH9), GLOO_SOCKET_IFNAME="eth0"), "wrong",
     "b: GLOO_SOCKET_IFNAME=eth0, and it has eth9, lo", "set GLOO_SOCKET_IFNAME to one"),
    (lambda f: interface(changed(own_address="127.0.0.1")), "warning", f"b: {NO_OTHER}", ETH0),
    (lambda f: interface(changed(own_address="127.0.1.1")), "warning", f"b: {NO_OTHER}", ETH0),
    (lambda f: advised(eno1=["10.1.0.1"], eth0=["10.0.0.1"], eth1=[], veth3=["10.3.0.1"]), "warning", NO_OTHER, ETH0),
    (lambda f: advised(docker0=["172.17.0.1"]), "warning", NO_OTHER, "set GLOO_SOCKET_IFNAME=NAME "),
]  # fmt: skip


@pytest.mark.parametrize(("found", "state", "said", "todo"), FOUND)
def test_a_check_finds(tmp_path: Path, found: Callable[[Path], Findings], state: str, said: str, todo: str) -> None:
    finding = only(found(tmp_path))
    assert finding.state == state
    assert finding.said.endswith(said)
    assert finding.todo.startswith(todo)


def test_each_host_that_lacks_an_interface_is_named() -> None:
    findings = list(network.interface(TWO, {"NCCL_SOCKET_IFNAME": "eth1"}))
    assert [finding.said[:2] for finding in findings] == ["a:", "b:"]


def test_the_numbers_of_a_model_with_adapters() -> None:
    model = build_model(MlmConfig(name="mlm", max_tokens=16), build_trunk(tiny.CONFIG))
    whole = sum(parameter.numel() for parameter in model.parameters())
    assert Numbers.from_model(model) == (whole, whole, whole)
    name, parameter = next(model.named_parameters())
    parameter.requires_grad_(False)
    model.from_base = frozenset([name])
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
    size = sum(path.stat().st_size for path in shards.glob("*.tar"))
    few = {**alone(cache_free=size), "b": replace(FACTS, cache_free=size - 1)}

    def findings(hosts: dict[str, HostFacts], place: str = f"file://{shards}", **keys: int) -> list[Finding]:
        data = {"shards": place, "lanes": 4, "cache": str(tmp_path / "cache"), **keys}
        return list(checks.cache(hosts, shard_data(recipe(tmp_path, data=data)).order.sources))

    assert findings(few, str(shards)) == []
    finding = only(findings(few))
    assert (finding.state, finding.said.split(",")[0].split()[-1]) == ("warning", "b")
    assert only(findings({"a": few["a"]})).state == "ok"
    assert only(findings(few, cache_bytes=size // 2)).state == "ok"


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


def test_a_micro_batch_that_fails_is_wrong(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory, damaged = torch.OutOfMemoryError("CUDA out of memory"), InputError("a: damaged")
    for error, said in ((out_of_memory, "1 examples do not fit this GPU"), (damaged, "a: damaged")):
        monkeypatch.setattr(checks, "on_device", Mock(side_effect=error))
        finding = tried(job)
        assert (finding.state, finding.said) == ("wrong", said)


def launcher(folder: Path, script: str) -> list[str]:
    (folder / "launcher").write_text(script)
    return ["sh", str(folder / "launcher")]


MEETS = """# prints its arguments in the place of the address
echo "[2026-01-01] [INFO] [launch.py:1:main] started"
echo "10.0.0.1: the ranks met at $*"
echo "10.0.0.1: [INFO] [launch.py:2:main] Process 7 exits successfully."
"""
FAILS = """
echo "b: all_reduce: rank 1: port 29500 is in use"
echo "b: [INFO] [launch.py:1:sigkill_handler] Killing subprocess 7"
echo "pdsh@a: b: ssh exited with exit code 2"
exit 2
"""


@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        (MEETS, "ok", "the ranks met at --module deepsiam.trainer.training.engine.all_reduce"),
        (FAILS, "wrong", "b: all_reduce: rank 1: port 29500 is in use"),
        ("exit 1", "wrong", "the launcher ended without a word"),
    ],
    ids=["meets", "fails", "silent"],
)
def test_a_launch_is_told_by_the_line_that_matters(tmp_path: Path, script: str, state: str, said: str) -> None:
    finding = only([meet(launcher(tmp_path, script))])
    assert (finding.state, finding.said) == (state, said)


def test_a_launch_that_hangs_is_ended_with_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LAUNCH_SECONDS", 1)
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    assert meet(launcher(tmp_path, script)).said == "the ranks did not end in 1 s"
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
