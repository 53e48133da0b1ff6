"""The error that all ranks of a run raise together."""

from deepsiam.data_prep.common.errors import InputError


class SharedError(InputError):
    """An error that every rank raises at the same place; only rank 0 prints it."""
