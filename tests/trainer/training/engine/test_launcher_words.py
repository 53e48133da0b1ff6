"""What arrives of the words that DeepSpeed sends to several hosts, compared with bash itself."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.launcher.multinode_runner import PDSHRunner

from deepsiam.trainer.training.engine.launcher import lost

ARRIVES = [
    "run=runs/a",
    "--resume",
    "optimizer.betas=[0.9,0.98]",
    "method.loss_weights={mlm: 0.5, decoder: 0.5}",
    "method.query_prompt=what's this? & that; $ 5 | <a> (b) * # ~",
    'method.query_prompt=a "quoted" word\n',
    r"method.template=a \n b",
    "data.cache=~/shards",
    "run=a~b",
    "run=a#b",
    "run=50%",
    "run=5$",
    "run=a!b^c=@,:+",
    "run=ünïcode",
    "method.template={query},{passages}",
    "x={}",
    "x={a..bc}",
    "x=*.nothing",
    "x=\r",
]
CHANGES = {
    "run=it's": "'",
    "run=a&b": "&",
    "run=a;b": ";",
    "run=a|b": "|",
    "run=a\tb": "\t",
    "run=a\nb": "\n",
    "run=a<b": "<",
    "run=a>/dev/null": ">",
    "run=(a)": "(",
    'run="a"': '"',
    "run=a\\b": "\\",
    "run=$HOME": "$H",
    "run=$(echo)": "$(",
    "run=$[1+2]": "$[",
    "run=`echo`": "`",
    "a ${HOME} b": "${",
    "a $1 b": "$1",
    "a `echo` b": "`",
    "a \\\\ b": "\\",
    'a \\" b': "\\",
    "a \\$ b": "\\",
    "a b\\": "\\",
    "#a": "#",
    "~": "~",
    "run=~/a": "run=~",
    "path=a:~/b": "path=a:~",
    "x={1,2}": "{1,2}",
    "x={{1},2}": "{{1},2}",
    "x={1..3}": "{1..3}",
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
    assert lost(word) == (repr(CHANGES[word]) if word in CHANGES else "")


@pytest.mark.parametrize("word", ["run=%h", "run=%u a", "run=%n", ""])
def test_what_pdsh_replaces_is_refused(word: str) -> None:
    assert lost(word)


def test_a_pattern_is_refused_where_a_file_matches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lost("steps=[12]") == ""
    (tmp_path / "steps=1").touch()
    assert lost("steps=1") == ""
    assert lost("steps=[12]") == "the pattern of a file here"
    assert arrived("steps=[12]", tmp_path) == ["steps=1"]
