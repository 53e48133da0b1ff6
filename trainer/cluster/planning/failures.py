"""How often to save: the checkpoint interval that loses the least time to failures.

All arguments are in seconds. Failures are independent and come at a constant rate, so that the times between them are
exponential; `mtbf` is the mean time between failures of all hosts together: one host's, divided by the number of hosts.

Young, 1974: A first order approximation to the optimum checkpoint interval. Communications of the ACM 17 (9).
Daly, 2006: A higher order estimate of the optimum checkpoint interval for restart dumps. Future Generation Computer
Systems 22 (3).
"""

from __future__ import annotations

import math


def young_interval(save: float, mtbf: float) -> float:
    """Return the first-order optimum of computing time between saves (Young, 1974): sqrt(2 save mtbf)."""
    return math.sqrt(2 * save * mtbf)


def daly_interval(save: float, mtbf: float) -> float:
    """Return the higher-order optimum of computing time between saves (Daly, 2006).

    sqrt(2 save mtbf) (1 + sqrt(save / 2 mtbf) / 3 + (save / 2 mtbf) / 9) - save where a save takes less than twice the
    mtbf, else the mtbf.
    """
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return young_interval(save, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save
