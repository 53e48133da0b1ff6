"""Whether something takes time in proportion to its input, whatever the machine does meanwhile.

No clock on the wall and no bound in seconds: the input grows until it costs LONG of this process's own CPU, and is
compared with its quarter. Linear work takes 4 times as long, quadratic work 16 times. It grows by little while it is
small: exponential work ends, too.
"""

import time
from collections.abc import Callable

LONG = 0.02  # seconds of CPU, far above the clock's and the machine's noise
MOST = 8  # times the cost of a quarter of the input: twice what linear work takes, and half of what quadratic work does
TRIES = 2  # noise only adds: the least of two is compared, and in one of two tries it has to be linear


def is_linear(work: Callable[[int], object], longest: int) -> bool:
    """Return whether the cost of work(n) grows like n, or work(longest) costs less than LONG."""
    size = 2
    while _cost(work, size) < LONG:
        if size >= longest:
            return True
        size = size + 2 if size < 32 else min(4 * size, longest)
    return any(_growth(work, size) < MOST for _ in range(TRIES))


def _growth(work: Callable[[int], object], size: int) -> float:
    quarters, wholes = zip(*((_cost(work, size // 4), _cost(work, size)) for _ in range(TRIES)), strict=True)
    return min(wholes) / max(min(quarters), 1e-9)


def _cost(work: Callable[[int], object], size: int) -> float:
    begun = time.process_time()
    work(size)
    return time.process_time() - begun
