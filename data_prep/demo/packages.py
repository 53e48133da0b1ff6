"""The Python files of the packages whose docstrings are the demo's text."""

from deepsiam.data_prep.demo.distributions import DISTRIBUTIONS
from deepsiam.data_prep.sources.docstrings.installed import SourceFile, installed


def files() -> list[SourceFile]:
    """Return the Python files of DISTRIBUTIONS and the standard library; print a line if some are not installed."""
    present, missing = installed(DISTRIBUTIONS)
    if missing:
        print(f"not installed, so the demo's text lacks their docstrings: {', '.join(missing)}")
    return present
