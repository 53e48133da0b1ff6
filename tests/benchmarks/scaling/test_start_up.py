"""The parts of a start add up, and a command's CPU time includes its children's."""

import sys
from pathlib import Path

from benchmarks.scaling.start_up import HERE, PARTS, THERE, cpu, rest, summary

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_the_rest_is_without_launcher_and_every_ranks_imports() -> None:
    assert rest({"whole": 20.0, "launcher": 4.0, "imports": 6.0}) == 4.0


def test_the_time_of_a_command_is_that_of_its_children_before_and_after_the_first_step() -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], check=True)"
    after = "print('step 1/1  mlm 9.4', flush=True); import time; time.sleep(0.2)"
    seconds, before, end = cpu(Path.cwd(), [sys.executable, "-c", f"{child}; {after}"])
    assert seconds > 0.3
    assert before > 0.25
    assert end >= 0.2


def test_two_codes_are_compared_within_each_round() -> None:
    here, there = {part: [1.0, 2.0] for part in PARTS}, {part: [4.0, 4.0] for part in PARTS}
    assert f"{HERE} / {THERE}" not in summary({HERE: here})
    results = summary({HERE: here, THERE: there})
    assert results[f"{HERE} / {THERE}"]["whole"] == {"min": 0.25, "median": 0.375, "max": 0.5}
    assert results[HERE]["wall"]["median"] == 1.5
