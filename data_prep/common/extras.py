"""Packages that only some commands need; the extras of pyproject.toml bring them."""

from importlib.util import find_spec

from deepsiam.data_prep.common.errors import InputError


def require(extra: str, *packages: str, feature: str = "") -> None:
    """Raise InputError, naming the extra to install, if packages that `feature` needs are not installed."""
    missing_packages = ", ".join(package for package in packages if find_spec(package) is None)
    if missing_packages:
        needs = f"{feature} needs a package that is" if feature else ""
        raise InputError(f"{needs} not installed: {missing_packages}; run: pip install 'deepsiam[{extra}]'".lstrip())
