"""What arrives of the variables and words that DeepSpeed's launcher sends to the hosts, compared with bash itself."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.launcher import runner
from deepspeed.launcher.multinode_runner import PDSHRunner

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import launcher


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


@pytest.mark.parametrize(
    "line",
    [
        'A="eth1"',  # as some tools write it
        "A='eth1'",  # these quotes stay: DeepSpeed puts others around them
        "A = eth1\r",
        'A="eth 1"',
        "A=eth 1",
        "A=",
        "A=^lo,docker",
        'A=x="1"',
        "A=10.0.0.0/8",
    ],
)
def test_a_value_is_what_the_hosts_shells_make_of_it(settings: Path, line: str) -> None:
    """Compared with bash, given what DeepSpeed gives to it through ssh."""
    settings.write_text(f"{line}\n")
    given = launcher.options(["train.py"])
    sent = runner.LAUNCHER_CLASSES[runner.PDSH_LAUNCHER](given, "")
    sent.add_export(*line.split("=", maxsplit=1))
    exports = "".join(f"export {name}={value}; " for name, value in sent.exports.items())
    shown = subprocess.run(["bash", "-c", f'{exports} printf %s "$A"'], capture_output=True, text=True, check=True)
    assert launcher.exported()["A"] == shown.stdout


@pytest.mark.parametrize("value", ["/a:$HOME", "`date`", 'a "b"', "a\\"])
def test_a_variable_that_would_arrive_otherwise_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PYTHONPATH", "/it's a & b/%h.%p")
    assert launcher.exported()["PYTHONPATH"] == "/it's a & b/%h.%p"
    monkeypatch.setenv("PYTHONPATH", value)
    with pytest.raises(InputError, match=r"^PYTHONPATH: DeepSpeed does not quote '.+' for the hosts' shells"):
        launcher.exported()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('A="eth1', r":1: the quotes of \"eth1 do not match"),
        ("A=b\n", ":2: .* is not NAME=value"),  # the launcher would crash here
        ("A=b\n# the fast network", ":2: .* is not NAME=value"),
    ],
)
def test_a_line_that_the_launcher_cannot_read_is_named(settings: Path, lines: str, said: str) -> None:
    settings.write_text(f"{lines}\n")
    with pytest.raises(InputError, match=rf"\.deepspeed_env{said}"):
        launcher.exported()


ARRIVES = [
    *("run=runs/a", "--resume", "run=a~b", "run=a#b", "run=50%", "run=5$", "run=a!b^c=@,:+", "run=ünïcode", "x={}"),
    *("optimizer.betas=[0.9,0.98]", "data.cache=~/shards", "method.template={query},{passages}", "x={a..bc}", "x=\r"),
    *("x=*.nothing", "method.loss_weights={mlm: 0.5, decoder: 0.5}", r"method.template=a \n b"),
    "method.query_prompt=what's this? & that; $ 5 | <a> (b) * # ~",
    'method.query_prompt=a "quoted" word\n',
]
CHANGES = {  # by word, what of it does not arrive
    **{f"run=a{character}b": character for character in "'&;|\t\n<>(\"\\"},
    **{f"run={start}a": start for start in ("`", "$(", "$[", "${")},
    "run=$HOME": "$H",
    "a ${HOME} b": "${",
    "a $1 b": "$1",
    "a `echo` b": "`",
    "path=a:~/b": "path=a:~",
    "a \\\\ b": "\\",
    'a \\" b': "\\",
    "a \\$ b": "\\",
    "a b\\": "\\",
    "#a": "#",
    "~": "~",
    "run=~/a": "run=~",
    **{f"x={group}": group for group in ("{1,2}", "{{1},2}", "{1..3}")},
}


def arrived(word: str, folder: Path) -> list[str] | None:
    """Return what bash makes of the word as DeepSpeed sends it; None where that is not even a command."""
    sent = PDSHRunner.parse_user_args(SimpleNamespace(args=SimpleNamespace(user_args=[word])))
    command = ["bash", "-c", f"printf '%s\\0' {sent[0]}"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    return done.stdout.decode().split("\0")[:-1] if done.returncode == 0 and not done.stderr else None


@pytest.mark.parametrize("word", [*ARRIVES, *CHANGES])
def test_a_word_is_refused_where_bash_would_change_it(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (arrived(word, tmp_path) == [word]) == (word in ARRIVES)
    assert launcher.lost(word) == (repr(CHANGES[word]) if word in CHANGES else "")


def test_what_pdsh_replaces_is_refused() -> None:
    assert all(launcher.lost(word) for word in ("run=%h", "run=%u a", "run=%n", ""))


def test_a_pattern_is_refused_where_a_file_matches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert launcher.lost("steps=[12]") == ""
    (tmp_path / "steps=1").touch()
    assert launcher.lost("steps=1") == ""
    assert launcher.lost("steps=[12]") == "the pattern of a file here"
    assert arrived("steps=[12]", tmp_path) == ["steps=1"]
