"""The mean length of a run with failures, in closed form: the reference for intervals and simulations."""

import math


def expected_seconds(work: float, interval: float, save: float, restart: float, mtbf: float) -> float:
    """Return the mean length of a run with failures, which may strike saves and restarts, too (Daly, 2006).

    mtbf e^(restart / mtbf) (e^((interval + save) / mtbf) - 1) work / interval; infinite where that overflows.

    Args:
        work: total computing time.
        interval: computing time between two saves.
        save: time to save a checkpoint.
        restart: time from a failure to the first new step.
        mtbf: mean time between failures of all hosts together.
    """
    try:
        return mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf) * work / interval
    except OverflowError:
        return math.inf
