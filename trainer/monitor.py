"""What a run says while it trains: TensorBoard events and a progress line, on rank 0."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

# dense half-precision peak, FLOP/s, by a part of the device's name (NVIDIA's data sheets)
PEAK = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40": 181e12,
    "L4": 121e12,
    "V100": 125e12,
    "T4": 65e12,
}


@dataclass
class Interval:
    """What has been counted since the last line."""

    steps: int = 0
    tokens: int = 0
    skipped: int = 0
    waited: float = 0.0  # seconds the step waited for data


class Monitor:
    """Rank 0's voice; on other ranks every call does nothing.

    `flops_per_token`, once known, turns tokens/s into model FLOP utilisation where the device's peak is known.
    """

    def __init__(self, run: Path, *, rank: int, ranks: int, start: int, steps: int):
        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=start + 1) if rank == 0 else None
        self.ranks, self.start, self.steps = ranks, start, steps
        self.interval = Interval()
        self.skipped = 0
        self.began = self.since = time.monotonic()
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        self.peak = next((peak for part, peak in PEAK.items() if part in name), None)
        self.flops_per_token: float | None = None

    def count(self, *, tokens: int, waited: float, skipped: bool) -> None:
        """Note one optimizer step; tokens are this rank's."""
        self.interval.steps += 1
        self.interval.tokens += tokens
        self.interval.waited += waited
        self.interval.skipped += skipped

    def log(self, step: int, losses: Mapping[str, float], lr: float, grad_norm: float, loss_scale: float) -> None:
        """Write the events of a step and print the progress line; `step` counts finished steps."""
        now, interval = time.monotonic(), self.interval
        seconds = now - self.since
        self.skipped += interval.skipped
        self.interval, self.since = Interval(), now
        if self.writer is None:
            return
        rate = interval.tokens * self.ranks / seconds
        scalars = {f"loss/{term}": value for term, value in losses.items()}
        scalars |= {"lr": lr, "grad_norm": grad_norm, "loss_scale": loss_scale, "skipped_steps": self.skipped}
        scalars |= {"tokens_per_second": rate, "data_wait_share": interval.waited / seconds}
        if self.peak and self.flops_per_token:
            scalars["mfu"] = self.flops_per_token * rate / (self.peak * self.ranks)
        for tag, value in scalars.items():
            self.writer.add_scalar(tag, value, step)
        eta = (now - self.began) / (step - self.start) * (self.steps - step)
        shown = "  ".join(f"{term} {value:.4f}" for term, value in losses.items())
        print(
            f"step {step}/{self.steps}  {shown}  lr {lr:.2e}  grad {grad_norm:.2f}  "
            f"{rate / 1000:.1f}k tokens/s  data wait {scalars['data_wait_share']:.0%}  ETA {duration(eta)}",
            flush=True,
        )

    def close(self) -> None:
        """Flush what is written."""
        if self.writer is not None:
            self.writer.close()


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
