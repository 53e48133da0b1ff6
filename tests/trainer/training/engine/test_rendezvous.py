"""Ranks that wait for rank 0, in threads and with real sockets; the all-reduce that shows whether they meet."""

import base64
import signal
import socket
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from datetime import timedelta
from unittest.mock import Mock

import psutil
import pytest
from torch.distributed import TCPStore

from deepsiam.trainer.training.engine import all_reduce, rendezvous
from deepsiam.trainer.training.engine.rendezvous import AbsentError, end_others, meet, meet_at, serve, stop_answering
from tests import toy
from tests.ports import free_port


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    number = free_port()
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", str(number))
    monkeypatch.setattr("sys.argv", ["trainer.pretrain", "--local_rank=0", "recipe.yaml"])
    assert meet_at() == ("127.0.0.1", number)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # restored after the test
    return number


def test_the_ranks_start_when_all_have_arrived_however_long_rank_0_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(3) as pool:
        served = serve()
        first = pool.submit(meet, 1, 3)
        wait_until_arrived(served, [1])
        with monkeypatch.context() as shorter:
            shorter.setattr(rendezvous, "ARRIVAL", timedelta(seconds=0.1))
            assert wait([first], 0.3).not_done
        own = pool.submit(meet, 0, 3)
        assert wait([first, own], 0.3).not_done == {first, own}
        second = pool.submit(meet, 2, 3)
        assert [rank.result(60) is not None for rank in (own, first, second)] == [True, True, True]


def test_a_rank_that_is_started_again_waits_for_the_next_rank_0() -> None:
    """The ranks of the run that is ending still have its store."""
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(meet, 1, 2)
        own = meet(0, 2)
        assert own is not None
        assert other.result(60) is not None
        stop_answering(own)
        again = pool.submit(meet, 1, 2)
        assert wait([again], 0.5).not_done
        del own  # ends the server
        following = meet(0, 2)
        assert again.result(60) is not None
    assert following is not None


def wait_until_arrived(store: TCPStore | None, ranks: list[int]) -> None:
    assert store
    store.wait([rendezvous._key(f"at/{rank}") for rank in ranks], timedelta(seconds=60))


WORLD_INFO = base64.urlsafe_b64encode(b'{"node1": [0, 1], "node2": [0], "node3": [0, 1]}').decode()


@pytest.mark.parametrize(
    ("launcher", "arrived", "named"),
    [
        (["python", f"--world_info={WORLD_INFO}"], [1, 3], "rank 2 on node2; rank 4 on node3"),
        (["python", f"--world_info={WORLD_INFO}"], [], "rank 1 on HERE; rank 2 on node2; ranks 3, 4 on node3"),
        (["mpirun"], [2], "ranks 1, 3 on HERE; rank 4 on host 2"),  # two ranks on a host: 3 is beside 2, which is here
        (["python", "--world_info=e30="], [1, 2, 3], "rank 4 on host 2"),
    ],
)
def test_ranks_that_do_not_come_are_named_and_the_others_end(
    monkeypatch: pytest.MonkeyPatch, launcher: list[str], arrived: list[int], named: str
) -> None:
    monkeypatch.setattr(psutil.Process, "cmdline", lambda process: launcher)
    monkeypatch.setenv("LOCAL_SIZE", "2")
    with ThreadPoolExecutor(4) as pool:
        served = serve()
        others = [pool.submit(meet, rank, 5) for rank in arrived]
        wait_until_arrived(served, arrived)
        monkeypatch.setattr(rendezvous, "ARRIVAL", timedelta(seconds=0.6))
        with pytest.raises(AbsentError) as absent:
            meet(0, 5)
        assert [getattr(other.exception(60), "code", None) for other in others] == [rendezvous.FAULT] * len(arrived)
    named = named.replace("HERE", socket.gethostname())
    assert str(absent.value).startswith(f"{named}: not arrived in 0.01 min (DEEPSPEED_TIMEOUT): ")


@pytest.mark.parametrize("silent", [False, True])
def test_a_rank_0_that_does_not_come_is_named(port: int, monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    monkeypatch.setattr(rendezvous, "ARRIVAL", timedelta(seconds=0.3))
    with socket.create_server(("", port)) if silent else nullcontext(), pytest.raises(AbsentError) as absent:
        meet(1, 2)
    assert str(absent.value).startswith("rank 0 on 127.0.0.1: not arrived in 0.005 min (DEEPSPEED_TIMEOUT): ")


def test_a_rank_0_that_ends_without_a_word_is_named() -> None:
    with ThreadPoolExecutor(1) as pool:
        own = serve()
        other = pool.submit(meet, 1, 2)
        wait_until_arrived(own, [1])
        del own
        assert str(other.exception(60)) == "rank 0 on 127.0.0.1 has ended before the ranks could join it"


@pytest.mark.parametrize("of_another_run", [False, True])
def test_the_ranks_end_with_the_code_of_rank_0(port: int, of_another_run: bool) -> None:
    taken = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False) if of_another_run else None
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(meet, rank, 3) for rank in (1, 2)]
        end_others(3, 2)
        assert [repr(other.exception(60)) for other in others] == ["SystemExit(2)"] * 2
    del taken


def test_rank_0_waits_for_ever_for_neither_ranks_nor_a_silent_program(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "OTHERS_SECONDS", 0.2)
    end_others(2, 2)
    monkeypatch.setattr(rendezvous, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("", port)):
        end_others(2, 2)


def test_ranks_of_another_command_are_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {rendezvous._key("said")}
    for words in (["--local_rank=1", "recipe.yaml"], ["--local_rank=0", "other.yaml"]):
        monkeypatch.setattr("sys.argv", ["trainer.pretrain", *words])
        keys.add(rendezvous._key("said"))
    assert len(keys) == 2


def test_torchrun_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert (serve(), meet(0, 2), meet(1, 2)) == (None, None, None)
    monkeypatch.setattr(rendezvous, "_end", lambda *_: pytest.fail("it waits for ranks that torchrun ends"))
    end_others(2, 2)


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
    alone = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = toy.run("tests.trainer.training.engine.meets_nobody", **alone)
    assert done.returncode == all_reduce.TIMEOUT_CODE
    assert "rank 1: the ranks did not meet and finish in 1 s" in done.stderr


def test_a_rank_whose_python_hangs_is_killed_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce.threading, "Timer", Mock())
    try:
        all_reduce._end_late(0)
    finally:
        left = signal.alarm(0)
    assert all_reduce.LIMIT_SECONDS < left <= all_reduce.LIMIT_SECONDS + 5
