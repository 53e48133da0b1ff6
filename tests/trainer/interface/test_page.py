"""docs/python.md, and what docs/command.md shows of Python, executed."""

import ast
import re
from pathlib import Path

import pytest

import deepsiam
from tests import toy
from tests.trainer.runs import write_run


def of_commands(shards: Path) -> str:
    """The trainings of docs/command.md after those of docs/python.md: a step each, on one rank."""
    (block,) = re.findall(r"```python\n(.*?)```", (toy.ROOT / "docs" / "command.md").read_text(), re.DOTALL)
    paths = {"runs/mine": "runs/other", "runs/seed": "FOLDER", "data/mine/shards": str(shards), "gpus=2, ": ""}
    for shown, here in paths.items():
        assert shown in block
        block = block.replace(shown, here)
    brief = """
from functools import partial
finetune = partial(deepsiam.finetune, steps=1, validation=None, data={"collection": "data/mine"})
pretrain = partial(deepsiam.pretrain, steps=1, **{"data.lanes": 4})
"""
    return brief + block.replace("deepsiam.", "") + "print(run)"


@pytest.mark.slow
def test_the_examples_run(shards: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (toy.ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    run = write_run(tmp_path / "start", shards / "tokenizer.json", name="siamese", max_document_tokens=64)
    deepsiam.export(run, tmp_path / "FOLDER")
    shapes = "print(queries.shape, vectors.shape, scores.shape, best in range(4))"
    code = "\n".join([*blocks, shapes, of_commands(shards)])
    (tmp_path / "shown.py").write_text(code)
    done = toy.run("tests.trainer.interface.script", tmp_path / "shown.py")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line.split()[0] for line in printed if re.match(r"\S+ +\d\.\d{4}  ", line)] == ["BM25", "mine", "both"]
    assert printed[-1] == "runs/small/seed"
    ranked = ast.literal_eval(printed[printed.index("(2, 32) (4, 32) (2, 4) True") - 1])
    assert sorted(place for place, _ in ranked) == [0, 1, 2, 3]
