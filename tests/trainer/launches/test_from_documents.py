"""recipes/from_documents: a folder of texts becomes an exported retriever, in parts; the page shows its commands."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import deepsiam
from tests import toy
from tests.trainer.ranking.served import says, server
from tests.trainer.runs import write_run

pytestmark = pytest.mark.slow  # real processes

MAKEFILE = toy.ROOT / "recipes" / "from_documents" / "Makefile"
PAGE = toy.ROOT / "docs" / "from_documents.md"
BRIEF = (
    "steps=2 batch.size=8 batch.micro=4 data.lanes=4 data.workers=0 checkpoint.every=1 optimizer.warmup_steps=1 "
    "method.teacher_width=32 method.max_document_tokens=64 deepspeed=cpu"
)


@pytest.fixture
def variables(shards: Path, tmp_path: Path) -> dict[str, object]:
    """What the command is given: texts, and tiny models."""
    (tmp_path / "texts" / "more").mkdir(parents=True)
    texts = [" ".join(sentences) for sentences in toy.documents(60, seed=3)]
    for i, text in enumerate(texts[:20]):
        (tmp_path / "texts" / "more" / f"{i}.txt").write_text(text)
    lines = "".join(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts[20:]))
    (tmp_path / "texts" / "texts.jsonl").write_text(lines)
    tokenizer, keys = shards / "tokenizer.json", {"name": "siamese", "max_document_tokens": 64}
    start = write_run(tmp_path / "start", tokenizer, **keys)
    shutil.copy(tokenizer, start)
    return {
        "DOCUMENTS": tmp_path / "texts",
        "WRITER": "org/tiny",
        "TEACHER": write_run(tmp_path / "teacher", tokenizer, **keys, similarity="cosine"),
        "START": start,
        "HELD_OUT": 10,
        "TRAIN": BRIEF,
    }


def words_of(body: dict[str, Any]) -> tuple[int, Any]:
    """Answer with some words of the document."""
    words = body["messages"][-1]["content"].partition("Text: ")[2].partition("\n\n")[0].split()
    return 200, says(f"{words[1]} {words[0]} {words[-1]} {words[-2]}")


def made(folder: Path, given: dict[str, object], *words: str) -> subprocess.CompletedProcess[str]:
    """Run make with a `deepsiam` that is forked."""
    program = folder / "bin" / "deepsiam"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {toy.forked_python()} -m deepsiam "$@"\n')
    program.chmod(0o755)
    outside = {name: value for name, value in toy.environment().items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    environment = outside | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = ["make", "-f", str(MAKEFILE), *(f"{name}={value}" for name, value in given.items()), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_documents_become_a_retriever(variables: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "from_documents"
    with server(words_of) as (url, _):
        given = variables | {"ASK": f"--kinds question --server {url}"}
        first = made(tmp_path, given, f"{out.name}/mined/manifest.json")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "60 documents, no queries" in first.stdout
    asked = (out / "asked" / "manifest.json").stat()
    rest = made(tmp_path, variables)
    assert rest.returncode == 0, rest.stdout + rest.stderr
    assert (out / "asked" / "manifest.json").stat() == asked
    assert [line.split()[1] for line in rest.stdout.splitlines() if line.startswith("deepsiam ")] == [
        "embed",
        "finetune",
        "evaluate",
        "export",
    ]
    assert re.findall(r"^(\w+) +0\.\d{4}", rest.stdout, re.MULTILINE) == ["BM25", "student", "fused"]
    assert deepsiam.load(out / "exported").encode_query(["a text"]).shape == (1, 32)
    done = made(tmp_path, variables)
    assert done.stdout == "make: Nothing to be done for 'all'.\n"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = made(tmp_path, {"START": "x"})
    assert "DOCUMENTS=FOLDER: the .txt or .jsonl files" in done.stderr
    assert not (tmp_path / "from_documents").exists()


def test_the_page_shows_these_commands(tmp_path: Path) -> None:
    given = {"DOCUMENTS": "texts", "WRITER": "WRITER", "TEACHER": "TEACHER", "START": "START"}
    printed = made(tmp_path, given, "--dry-run").stdout.replace("\\\n", " ")
    commands = [" ".join(line.split()) for line in printed.splitlines() if line.startswith("deepsiam ")]
    blocks = "".join(re.findall(r"(?m)^(?:    .*\n)+", PAGE.read_text())).replace("\\\n", " ")
    shown = [" ".join(line.split()) for line in blocks.splitlines() if line.strip().startswith("deepsiam ")]
    assert [command.replace(f"{toy.ROOT}/", "") for command in commands] == shown[:7]
