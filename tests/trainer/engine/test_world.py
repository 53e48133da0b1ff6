"""This process among all ranks."""

import pytest

from trainer.engine import world
from trainer.engine.world import World, device_memory, join


def test_the_world_is_that_of_the_launcher_or_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert World.from_environment() == World(rank=0, size=1, local_rank=0, local_size=1)
    for name, value in zip(names, "5812", strict=True):
        monkeypatch.setenv(name, value)
    assert World.from_environment() == World(rank=5, size=8, local_rank=1, local_size=2)


def test_the_memory_of_a_cpu_is_shared_by_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = device_memory()
    monkeypatch.setenv("LOCAL_SIZE", "4")
    assert device_memory() == alone // 4 > 0


def test_each_rank_of_a_host_takes_its_own_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # and put back what was there
    monkeypatch.setattr(world, "_joined", False)
    taken: list[int] = []
    monkeypatch.setattr(world.get_accelerator(), "set_device", taken.append, raising=False)
    monkeypatch.setattr(world.deepspeed, "init_distributed", lambda **_: None)
    join(World(rank=7, size=8, local_rank=3, local_size=4))
    assert taken == [3]
