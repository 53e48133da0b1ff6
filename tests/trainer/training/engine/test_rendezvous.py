"""Ranks that wait for rank 0, in threads and with real sockets."""

import socket
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from torch.distributed import TCPStore

from tests.ports import free_port
from trainer.training.engine import rendezvous
from trainer.training.engine.rendezvous import close, end_others, meet_at, wait_for_rank_0


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    number = free_port()
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", str(number))
    monkeypatch.setattr("sys.argv", ["trainer.pretrain", "--local_rank=0", "recipe.yaml"])
    assert meet_at() == ("127.0.0.1", number)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # restored after the test
    return number


def test_the_ranks_start_when_rank_0_does() -> None:
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(wait_for_rank_0, rank) for rank in (1, 2)]
        own = wait_for_rank_0(0)
        assert [other.result(60) is not None for other in others] == [True, True]
    assert own is not None


def test_a_rank_that_is_started_again_waits_for_the_next_rank_0() -> None:
    """The ranks of the run that is ending still have its store."""
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(wait_for_rank_0, 1)
        own = wait_for_rank_0(0)
        assert own is not None
        assert other.result(60) is not None
        close(own, 2)
        again = pool.submit(wait_for_rank_0, 1)
        assert wait([again], 0.5).not_done
        del own  # ends the server
        following = wait_for_rank_0(0)
        assert again.result(60) is not None
    assert following is not None


@pytest.mark.parametrize("of_another_run", [False, True])
def test_the_ranks_end_with_the_code_of_rank_0(port: int, of_another_run: bool) -> None:
    taken = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False) if of_another_run else None
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(wait_for_rank_0, rank) for rank in (1, 2)]
        end_others(3, 2)
        assert [type(other.exception(60)) for other in others] == [SystemExit, SystemExit]
        assert [getattr(other.exception(), "code", None) for other in others] == [2, 2]
    del taken


def test_rank_0_does_not_wait_for_ever_for_ranks_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "OTHERS_SECONDS", 0.2)
    end_others(2, 2)


def test_rank_0_does_not_wait_for_a_program_that_says_nothing(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("", port)):
        end_others(2, 2)


def test_ranks_of_another_command_are_not_answered(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = wait_for_rank_0(0)
    assert own is not None
    keys = {rendezvous._key()}
    for words in (["--local_rank=1", "recipe.yaml"], ["--local_rank=0", "other.yaml"]):
        monkeypatch.setattr("sys.argv", ["trainer.pretrain", *words])
        keys.add(rendezvous._key())
    assert len(keys) == 2


def test_torchrun_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert wait_for_rank_0(1) is None
