"""docs/python.md, executed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepsiam
from tests import toy
from tests.trainer.runs import write_run


@pytest.mark.slow
def test_the_examples_run(shards: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (toy.ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    run = write_run(tmp_path / "start", shards / "tokenizer.json", name="siamese", max_document_tokens=64)
    deepsiam.export(run, tmp_path / "FOLDER")
    code = "\n".join([*blocks, "print(queries.shape, vectors.shape, scores.shape, best in range(4))"])
    variables = toy.environment() | {"PYTHONPATH": os.pathsep.join([str(toy.ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line.split()[0] for line in printed if re.match(r"\S+ +\d\.\d{4}  ", line)] == ["BM25", "mine", "both"]
    assert printed[-1] == "(2, 32) (4, 32) (2, 4) True"
    ranked = ast.literal_eval(printed[-2])
    assert sorted(place for place, _ in ranked) == [0, 1, 2, 3]
