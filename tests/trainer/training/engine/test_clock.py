"""The clock that times pieces of work."""

import time

import torch

from deepsiam.trainer.training.engine.clock import DeviceClock


def test_it_adds_up_what_is_counted_and_begins_anew_when_taken() -> None:
    clock = DeviceClock(torch.device("cpu"))
    began = time.perf_counter()
    for _ in range(2):
        with clock.counting():
            time.sleep(0.01)
    longest = time.perf_counter() - began
    time.sleep(0.01)
    assert 0.02 <= clock.take() <= longest
    assert clock.take() == 0.0
