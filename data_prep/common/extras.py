"""Packages that only some commands need; the extras of pyproject.toml bring them."""

from importlib.util import find_spec

from deepsiam.data_prep.common.errors import InputError


def require(extra: str, *packages: str, what: str = "") -> None:
    """Raise InputError, naming the extra to install, if packages that `what` needs are not installed."""
    missing = ", ".join(package for package in packages if find_spec(package) is None)
    if missing:
        needs = f"{what} needs a package that is" if what else ""
        raise InputError(f"{needs} not installed: {missing}; run: pip install 'deepsiam[{extra}]'".lstrip())
