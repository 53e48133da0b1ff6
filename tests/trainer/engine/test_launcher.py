"""The variables that DeepSpeed's launcher sends to the hosts."""

from pathlib import Path

import pytest
from deepspeed.launcher import runner

from data_prep.common.errors import InputError
from trainer.engine import launcher


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the launcher's variables file, not yet written."""
    monkeypatch.setattr(runner, "DEEPSPEED_ENVIRONMENT_PATHS", [str(tmp_path)])
    monkeypatch.setattr(runner, "DEEPSPEED_ENVIRONMENT_NAME", ".deepspeed_env")
    return tmp_path / ".deepspeed_env"


def test_variables_come_from_the_environment_by_prefix_and_from_the_file(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # not sent
    sent = launcher.exported()
    assert sent["PYTHONHASHSEED"] == "7"
    assert "GLOO_SOCKET_IFNAME" not in sent
    settings.write_text("GLOO_SOCKET_IFNAME=eth1\nA=b=c\n")
    sent = launcher.exported()
    assert (sent["GLOO_SOCKET_IFNAME"], sent["A"]) == ("eth1", "b=c")


@pytest.mark.parametrize("line", ["", "# the fast network"])
def test_a_line_at_which_the_launcher_crashes_is_named(settings: Path, line: str) -> None:
    settings.write_text(f"A=b\n{line}\n")
    with pytest.raises(InputError, match=r"\.deepspeed_env:2: .* is not NAME=value"):
        launcher.exported()
