"""The one finding of a check."""

from collections.abc import Iterable

from deepsiam.trainer.cluster.hosts.checks import Finding


def only(findings: Iterable[Finding]) -> Finding:
    """Return the only finding; one that is not ok says what to do."""
    (finding,) = findings
    assert bool(finding.todo) == (finding.state != "ok")
    return finding
