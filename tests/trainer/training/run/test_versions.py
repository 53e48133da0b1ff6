import subprocess
from pathlib import Path

import pytest

from deepsiam.trainer.training.run.versions import code_hash, git_commit


@pytest.fixture(autouse=True)
def no_repository_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stop git from looking for a repository above the test's folder."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("GIT_DIR", "GIT_WORK_TREE"):  # set if a commit hook runs the tests
        monkeypatch.delenv(name, raising=False)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkouts_commit_says_whether_there_are_changes(tmp_path: Path) -> None:
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "file").write_text("1")
    git(folder, "init")
    git(folder, "add", "file")
    git(folder, "commit", "--message", "one")
    git(folder, "tag", "--annotate", "v1", "--message", "a release")  # the commit is still named by its hash
    assert git_commit(folder) == git(folder, "rev-parse", "HEAD")
    (folder / "file").write_text("2")
    assert git_commit(folder) == git(folder, "rev-parse", "HEAD") + "-dirty"


@pytest.mark.parametrize("kind", ["no checkout", "no folder", "no git"])
def test_without_one_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit(tmp_path / "missing" if kind == "no folder" else tmp_path) == "unknown"


def test_code_is_known_by_its_bytes_and_names(tmp_path: Path) -> None:
    hashes = set()
    for name, content in {"trainer/a.py": "1", "models/a.py": "1", "ds_configs/b.json": "{}", "docs/c.md": "c"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
        hashes.add(code_hash(tmp_path))
    (tmp_path / "trainer/a.py").write_text("2")
    assert len(hashes | {code_hash(tmp_path)}) == 4  # pages are no code
