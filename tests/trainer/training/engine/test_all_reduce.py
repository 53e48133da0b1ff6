"""The all-reduce over real ranks: that they meet, and that no rank waits forever."""

import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from deepsiam.trainer.training.engine import all_reduce
from tests import toy


def test_two_ranks_meet() -> None:
    done = toy.launch(2, "deepsiam.trainer.training.engine.all_reduce")
    assert done.returncode == 0, done.stderr
    assert f"{all_reduce.MET}127.0.0.1, all 2" in done.stdout.splitlines()


def test_a_wrong_sum_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("join", "_end_late"):
        monkeypatch.setattr(all_reduce, name, Mock())
    monkeypatch.setattr(all_reduce.World, "from_environment", lambda: all_reduce.World(0, 2, 0, 2))
    monkeypatch.setattr(all_reduce.dist, "all_reduce", Mock())  # leaves the numbers as they are
    with pytest.raises(SystemExit):
        all_reduce.main()
    assert "rank 0: the sum over the ranks is wrong" in capsys.readouterr().err


def test_a_rank_that_meets_nobody_ends() -> None:
    script = "from deepsiam.trainer.training.engine import all_reduce; all_reduce.LIMIT_SECONDS = 1; all_reduce.main()"
    alone = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    env = {**toy.environment(), **alone, "MASTER_PORT": str(toy.free_port())}
    done = subprocess.run([sys.executable, "-c", script], cwd=toy.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == all_reduce.TIMEOUT_CODE
    assert "rank 1: the ranks did not meet and finish in 1 s" in done.stderr


def test_a_rank_whose_python_hangs_is_killed_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce.threading, "Timer", Mock())
    try:
        all_reduce._end_late(0)
    finally:
        left = signal.alarm(0)
    assert all_reduce.LIMIT_SECONDS < left <= all_reduce.LIMIT_SECONDS + 5
