"""Find the best of a run's probes, and count those without a gain."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepsiam.data_prep.common.json_file import Count


@dataclass(frozen=True)
class Best:
    """The state after a run's probes so far."""

    of: str = ""  # what is measured: the best of another measure counts for nothing
    value: float | None = None  # the highest
    step: Count = 0  # at which it was measured
    last: Count | None = None  # the step of the last probe
    bad: Count = 0  # consecutive probes without a higher value

    def after(self, step: int, value: float, of: str, *, is_extra: bool = False) -> Best:
        """Return the state after one more probe; one that a resumed run repeats is not counted again.

        One that `is_extra`, at a run's last step alone, may be the best, but does not count as one without a gain.
        """
        if self.of != of:
            return Best(of, value, step, step)
        if self.last is not None and step <= self.last:
            return self
        if self.value is None or value > self.value:
            return Best(of, value, step, step)
        return replace(self, last=step, bad=self.bad + (not is_extra))
