"""This process's place among all ranks."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import device, world
from deepsiam.trainer.training.engine.device import accelerator
from deepsiam.trainer.training.engine.rendezvous import end_others
from deepsiam.trainer.training.engine.world import (
    LAUNCHERS,
    World,
    check_address,
    device_memory,
    failed_rank_exits_first,
    join,
    rank_0_speaks,
)
from deepsiam.trainer.training.errors import SharedError


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for names in LAUNCHERS for name in names} | {"MASTER_ADDR", "MASTER_PORT", "SLURM_NODEID"}:
        monkeypatch.delenv(name, raising=False)


def set_variables(monkeypatch: pytest.MonkeyPatch, values: str) -> None:
    for name, value in (pair.split("=") for pair in values.split()):
        monkeypatch.setenv(name, value)


SRUN = "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x4)"
OPEN_MPI = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2"


SLURM = "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE="
PLACED = [  # the variables of each launcher
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=2",
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
    OPEN_MPI,
    "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
    f"{SLURM}4,2(x2) SLURM_NODEID=1",
    f"{SLURM}2(x4) SLURM_NODEID=2",
    # launchers that srun has started
    f"{SRUN} RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=2",  # deepspeed --no_ssh
    f"{SRUN} {OPEN_MPI}",
    f"{SRUN} WORLD_SIZE=8 PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",  # mpich sets WORLD_SIZE
]
ALONE = [
    "SLURM_PROCID=0 SLURM_NTASKS=16 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=8(x2)",  # a batch script
    "WORLD_SIZE=1",
    "",
]
REFUSED = [
    ("WORLD_SIZE=8", "WORLD_SIZE is 8, and RANK and LOCAL_RANK and LOCAL_SIZE not set"),
    ("WORLD_SIZE=8 RANK=1 LOCAL_RANK=1", "WORLD_SIZE is 8, and LOCAL_SIZE not set: start the ranks with"),
    ("PMI_SIZE=2 PMI_RANK=1", "PMI_SIZE is 2, and MPI_LOCALRANKID and MPI_LOCALNRANKS not set"),
    ("RANK=first WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=2", "RANK is 'first', not a number"),
    ("WORLD_SIZE=all", "WORLD_SIZE is 'all', not a number"),
    ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_SIZE=few", "LOCAL_SIZE is 'few', not a number"),
    (f"{SLURM}4(x2)", "SLURM_NODEID is ''"),
]


@pytest.mark.parametrize(
    ("values", "place"),
    [*((values, World(5, 8, 1, 2)) for values in PLACED), *((values, World(0, 1, 0, 1)) for values in ALONE), *REFUSED],
)
def test_every_launcher_is_understood_and_ranks_that_nothing_tells_apart_are_refused(
    monkeypatch: pytest.MonkeyPatch, values: str, place: World | str
) -> None:
    set_variables(monkeypatch, values)
    if isinstance(place, World):
        assert World.from_environment() == place
    else:
        with pytest.raises(InputError, match=f"^{place}"):
            World.from_environment()


def test_ranks_of_several_hosts_need_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(world.time, "sleep", waited.append)
    check_address(World(rank=1, size=2, local_rank=1, local_size=2))
    for rank in (0, 2):
        with pytest.raises(SharedError, match="^MASTER_ADDR is not set"):
            join(World(rank=rank, size=4, local_rank=0, local_size=2))
    assert len(waited) == 1  # rank 0 prints it first
    monkeypatch.setenv("MASTER_ADDR", "node1")
    check_address(World(rank=0, size=4, local_rank=0, local_size=2))


@pytest.mark.parametrize("port", ["", "http", "0", "65536", "-1", "29500.0", "٣٠٠٠", "29500 "])
def test_a_port_that_is_none_is_one_error_that_rank_0_prints(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    waited: list[int] = []
    monkeypatch.setattr(world.time, "sleep", waited.append)
    monkeypatch.setenv("MASTER_PORT", port)
    for rank in (0, 1):
        with pytest.raises(SharedError, match=f"^MASTER_PORT: {port!r} is not a port from 1 to 65535"):
            join(World(rank=rank, size=2, local_rank=rank, local_size=2))
    assert len(waited) == 1
    end_others(2, 2)  # nobody can be reached, which is no second error


def test_the_memory_of_a_cpu_is_shared_by_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = device_memory()
    set_variables(monkeypatch, "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=4")
    assert device_memory() == alone // 4 > 0


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let a rank join without others; return what `init_distributed` is given, and how long it may wait afterwards."""
    for name in (*LAUNCHERS[0], "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # restored after the test
    given: dict[str, Any] = {}
    monkeypatch.setattr(world, "_is_joined", False)
    monkeypatch.setattr(world, "meet", lambda rank, ranks: None)
    monkeypatch.setattr(world.deepspeed, "init_distributed", lambda **options: given.update(options))
    monkeypatch.setattr(dist, "barrier", lambda: None)
    monkeypatch.setattr(world, "wait_at_most", lambda seconds: given.update(later=seconds))
    return given


def test_each_rank_of_a_host_takes_its_own_accelerator(
    joining: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(accelerator(), "set_device", taken.append, raising=False)
    join(World(rank=7, size=8, local_rank=3, local_size=4))
    assert taken == [3]
    # then one rank may work alone
    assert joining["timeout"] < timedelta(hours=1) < timedelta(seconds=joining["later"])
    assert World.from_environment() == World(rank=7, size=8, local_rank=3, local_size=4)
    monkeypatch.setattr(accelerator(), "device_count", lambda: 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    join(World(rank=7, size=8, local_rank=3, local_size=4))
    assert taken == [3, 0]
    # DeepSpeed takes this for the device's number, and requires Open MPI's to be the same
    assert os.environ["LOCAL_RANK"] == os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] == "0"


@pytest.mark.usefixtures("joining")
def test_the_ranks_of_a_host_share_its_cores_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(device, "usable_cores", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    join(World(rank=7, size=8, local_rank=3, local_size=4))
    assert chosen == []
    monkeypatch.delenv("OMP_NUM_THREADS")
    join(World(rank=7, size=8, local_rank=3, local_size=4))
    join(World(rank=7, size=32, local_rank=3, local_size=16))
    assert chosen == [2, 1]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:9"),
        dist.DistBackendError(
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was "
            "a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error"
        ),
        dist.DistBackendError(
            "NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3\nncclInternalError: "
            "Internal check failed.\nLast error:\nNet : Connection closed by remote peer node2<50260>"
        ),
        dist.DistBackendError("NCCL communicator was aborted on rank 3. "),
        RuntimeError("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"),
        dist.DistNetworkError("failed to recv, got 0 bytes"),
    ],
)
def test_a_lost_rank_is_one_line_after_the_failed_rank_s_own(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(world.time, "sleep", waited.append)
    with pytest.raises(SystemExit) as end, failed_rank_exits_first():
        raise error
    assert str(end.value) == f"lost contact with another rank, which reported no error: {' '.join(str(error).split())}"
    assert waited == [world.FAILED_FIRST_SECONDS]


def test_this_rank_s_own_error_is_not_taken_for_a_lost_one() -> None:
    twice = dist.DistBackendError("ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b")
    for error in (RuntimeError("CUDA out of memory"), twice):
        with pytest.raises(type(error)), failed_rank_exits_first():
            raise error


def test_a_line_of_a_table_keeps_its_blanks_and_has_no_control(capsys: pytest.CaptureFixture[str]) -> None:
    world.say("     1e-04    3.5\x1b[2J")
    assert capsys.readouterr().out == "     1e-04    3.5\\x1b[2J\n"


@pytest.fixture
def ranks_store(monkeypatch: pytest.MonkeyPatch) -> dist.Store:
    """The store of ranks that have joined, of which rank 0 takes no time at all."""
    store = dist.HashStore()
    monkeypatch.setattr(world.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(world, "_is_joined", True)
    monkeypatch.setattr(world, "RANK_0_FIRST_SECONDS", 0)
    return store


def fail(rank: int, line: str) -> None:
    with rank_0_speaks(rank):
        raise InputError(line)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_one_rank_prints_what_all_find(ranks_store: dist.Store, order: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="not finite"):
        fail(order[0], "not finite")
    for rank in order[1:]:
        with pytest.raises(SystemExit) as end:
            fail(rank, "not finite")
        assert end.value.code == 2
    with pytest.raises(InputError, match="disk full"):  # another line is news
        fail(1, "disk full")


def test_a_rank_waits_for_rank_0_to_print(ranks_store: dist.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "RANK_0_FIRST_SECONDS", 1e9)
    with ThreadPoolExecutor() as ranks:
        late = ranks.submit(fail, 1, "not finite")
        with pytest.raises(InputError):
            fail(0, "not finite")
    assert isinstance(late.exception(), SystemExit)


@pytest.mark.parametrize(("rank", "expected"), [(0, InputError), (1, SystemExit)])
def test_rank_0_has_printed_what_all_find_before_it_ends(
    ranks_store: dist.Store, monkeypatch: pytest.MonkeyPatch, rank: int, expected: type[BaseException]
) -> None:
    def lost(*_: object) -> bool:
        raise dist.DistNetworkError("failed to recv, got 0 bytes")

    monkeypatch.setattr(dist.HashStore, "check", lost)
    monkeypatch.setattr(dist.HashStore, "add", lost)
    with pytest.raises(expected):
        fail(rank, "not finite")
