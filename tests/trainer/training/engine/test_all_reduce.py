"""The all-reduce over real ranks: what it measures, and that no rank waits forever."""

import json
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from deepsiam.trainer.training.engine import all_reduce
from tests import toy


def test_two_ranks_measure_together() -> None:
    done = toy.launch(2, "deepsiam.trainer.training.engine.all_reduce", 300_000, "bfloat16")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    measured = all_reduce.Measured(**json.loads(line))
    assert (measured.ranks, measured.address, measured.size) == (2, "127.0.0.1", 600_000)
    assert measured.seconds > 0
    assert measured.latency > 0
    # each rank sends half of the tensor twice: once in the reduce-scatter, once in the all-gather
    sent = [of_host["lo"] for of_host in measured.sent]
    assert all(size >= all_reduce.REPEATS * 2 * 600_000 for size in sent)


def test_the_time_limits_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor is as large as the remaining seconds allow, and the same on every rank."""
    monkeypatch.setattr(all_reduce, "_seconds", lambda tensor: len(tensor) * 1e-6)
    monkeypatch.setattr(all_reduce, "_slowest", lambda seconds, **_: seconds)
    monkeypatch.setattr(all_reduce.dist, "all_gather_object", lambda found, value: found.__setitem__(0, value))
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    here = all_reduce.torch.device("cpu")
    one = all_reduce.World(0, 1, 0, 1)
    measured = all_reduce.measure(10**9, all_reduce.torch.float32, here, one)
    # 2^18 numbers take 0.26 s: four all-reduces of 4 x as many take 4.2 of 5 s, of 16 x as many too long
    assert measured.size == 4 * (1 << 20)
    assert all_reduce.measure(1000, all_reduce.torch.float32, here, one).size == 4000


def test_a_rank_that_meets_nobody_ends() -> None:
    script = (
        "from deepsiam.trainer.training.engine import all_reduce; "
        "all_reduce.LIMIT_SECONDS = 1; all_reduce.main(['10', 'float32'])"
    )
    alone = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    env = {**toy.environment(), **alone, "MASTER_PORT": str(toy.free_port())}
    done = subprocess.run([sys.executable, "-c", script], cwd=toy.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == all_reduce.LATE
    assert "rank 1: the ranks did not meet and finish in 1 s" in done.stderr


def test_a_rank_whose_python_hangs_is_killed_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce.threading, "Timer", Mock())
    try:
        all_reduce._end_late(0)
    finally:
        left = signal.alarm(0)
    assert all_reduce.LIMIT_SECONDS < left <= all_reduce.LIMIT_SECONDS + 5
