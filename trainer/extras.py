"""Packages that ranking and plots need and training does not."""

from __future__ import annotations

from importlib.util import find_spec

from data_prep.errors import InputError


def require(*packages: str) -> None:
    """Raises InputError naming the packages that are not installed and the extra that brings them."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise InputError(f"not installed: {', '.join(missing)}; run: pip install 'deepsiam[evaluate]'")
