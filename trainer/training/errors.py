"""The error that all ranks of a run raise together."""

from __future__ import annotations

from deepsiam.data_prep.common.errors import InputError


class SharedError(InputError):
    """An error that every rank raises at the same place; only rank 0 prints it."""
