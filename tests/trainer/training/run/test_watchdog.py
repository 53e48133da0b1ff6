"""The watchdog."""

import threading
import time

import pytest

from trainer.training.run.watchdog import HUNG, Watchdog


def test_without_progress_the_stacks_are_printed_and_the_process_ends(capfd: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    codes = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with Watchdog(0.1, rank=3, end=end, grace=0.0):
        assert ended.wait(30)
    assert codes[0] == HUNG
    printed = capfd.readouterr().err
    assert "rank 3: no step for 0.1 s (faults.hang_seconds)" in printed
    assert "test_without_progress_the_stacks" in printed


def test_with_progress_the_process_goes_on() -> None:
    codes: list[int] = []
    with Watchdog(5.0, rank=0, end=codes.append) as watchdog:
        for _ in range(5):
            time.sleep(0.02)
            watchdog.beat()
    assert codes == []
