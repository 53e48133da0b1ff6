"""Step a Hugging Face Trainer from outside, so that it can take turns with other ways to train."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from benchmarks.common import machine
from deepsiam.trainer.training.recipe.schema import OptimizerConfig


def trainer_arguments(keys: OptimizerConfig) -> dict[str, Any]:
    """Return the recipe's optimizer as a Trainer's arguments, for a run without end that logs and saves nothing."""
    return {
        "max_steps": 10**6,
        "learning_rate": keys.lr,
        "adam_beta1": keys.betas[0],
        "adam_beta2": keys.betas[1],
        "adam_epsilon": keys.eps,
        "weight_decay": keys.weight_decay,
        "max_grad_norm": keys.clip,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


class Turns(TrainerCallback):
    """Hands control back and forth between the benchmark and the Trainer's thread; times the steps."""

    def __init__(self) -> None:
        self.may_step, self.is_ready = threading.Semaphore(0), threading.Semaphore(0)
        self.closing, self.seconds, self.steps = False, 0.0, 0
        self.error: BaseException | None = None

    def start(self, trainer: Trainer) -> None:
        """Start training; return before its first step."""
        self.thread = threading.Thread(target=self._train, args=(trainer,), daemon=True)
        self.thread.start()
        self._wait()

    def take(self) -> float:
        """Let one step happen, and the next batch be fetched; return the seconds of the step."""
        self.may_step.release()
        self._wait()
        return self.seconds

    def close(self) -> None:
        """Let the training end."""
        self.closing = True
        self.may_step.release()
        self.thread.join()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Wait for the next turn."""
        self.is_ready.release()
        self.may_step.acquire()
        if self.closing:
            raise _ClosedError
        machine.synchronize()
        self.began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop the clock."""
        machine.synchronize()
        self.seconds = time.perf_counter() - self.began
        self.steps += 1

    def _train(self, trainer: Trainer) -> None:
        try:
            with suppress(_ClosedError):
                trainer.train()
        except BaseException as error:
            self.error = error
            self.is_ready.release()

    def _wait(self) -> None:
        self.is_ready.acquire()
        if self.error is not None:
            raise self.error


class _ClosedError(Exception):
    """Raised in the Trainer's thread when the benchmark has ended."""
