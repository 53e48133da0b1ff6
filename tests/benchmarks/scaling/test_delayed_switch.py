"""The switch in user space: where frames go, and when."""

import pytest

from benchmarks.scaling.delayed_switch import POLL_SECONDS, Switch

A, B, C, ALL = b"aaaaaa", b"bbbbbb", b"cccccc", b"\xff" * 6


def test_a_frame_goes_to_the_port_of_its_destination_or_to_all_others() -> None:
    switch = Switch(3)
    switch.receive(0, ALL + A, 0.0)
    assert switch.due(0.0) == [(1, ALL + A), (2, ALL + A)]
    switch.receive(1, A + B, 0.0)
    assert switch.due(0.0) == [(0, A + B)]
    switch.receive(2, B + C, 0.0)
    assert switch.due(0.0) == [(1, B + C)]
    switch.receive(0, A + A, 0.0)  # from A to itself
    assert switch.due(0.0) == []


def test_frames_are_kept_until_they_are_due_and_leave_in_order() -> None:
    switch = Switch(2)
    switch.delay = 0.5
    for number in range(3):
        switch.receive(0, B + A + bytes([number]), 10.0)
    assert switch.due(10.4) == []
    assert switch.wait(10.49) == pytest.approx(0.01)
    switch.delay = 0.0
    switch.receive(1, A + B, 10.4)
    assert switch.due(10.4) == [(0, A + B)]
    assert switch.due(10.6) == [(1, B + A + bytes([number])) for number in range(3)]
    assert switch.wait(10.6) == POLL_SECONDS
