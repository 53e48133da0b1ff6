"""What users write: a script with every public name passes `mypy --strict`, and the examples of the pages run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepsiam
from tests import toy
from tests.trainer.runs import write_run

SCRIPT = """\
from pathlib import Path

import deepsiam


def first(model: deepsiam.Model, texts: list[str]) -> tuple[int, float]:
    one: list[tuple[int, float]] = model.rank("a query", texts)
    several: list[list[tuple[int, float]]] = model.rank(["a query", "another"], tuple(texts))
    return (one + several[0])[0]


def texts_of(index: deepsiam.Index) -> list[str]:
    hits: list[deepsiam.Hit] = index.search("a query")
    several: list[list[deepsiam.Hit]] = index.search(["a query"], 3)
    return [f"{hit.id} {hit.score:.2f} {hit.text}" for hit in hits + several[0]]


def main() -> int:
    try:
        model = deepsiam.load("runs/mine", precision="bf16")
    except deepsiam.InputError as error:
        print(error)
        return 2
    queries, documents = model.encode_query(["a"]), model.encode_document("b", dimensions=64, as_tensor=True)
    scores: float = model.similarity(queries, documents).item()
    made = deepsiam.Collection.from_texts({"d": "b"}, {"q": "a"}, {"q": {"d": 1}}, folder=Path("data/mine"))
    opened = deepsiam.Collection.open(made.directory)
    table: deepsiam.Evaluation = deepsiam.evaluate(opened, {"bm25": "bm25", "mine": model, "other": Path("runs/other")})
    best: float = table.metrics["mine"]["ndcg@10"]
    print(table, best, scores, first(model, ["b"]), texts_of(deepsiam.open_index("indexes/mine")))
    deepsiam.register("matching", "two_way", "my_package.two_way.TwoWayConfig")
    try:
        run: Path = deepsiam.pretrain("seed_small", gpus=2, resume=True, data={"shards": "data/mine/shards"})
        run = deepsiam.finetune({"run": "runs/mine"}, init_from=run, optimizer={"lr": 1e-4})
    except deepsiam.StoppedError:
        return 1
    exported: Path = deepsiam.export("runs/mine", "exported")
    print(exported, deepsiam.__version__)
    return 0
"""
LARGE = ("torch", "transformers", "deepspeed", "webdataset")  # whose own types take minutes to read
SKIPPED = "follow_imports = skip\n"
WRONG = """\
import deepsiam

model = deepsiam.load("runs/mine", precison="bf16")
place: str = model.rank("a", ["b"])[0][0]
"""


@pytest.mark.slow
def test_a_user_s_script_is_typed(tmp_path: Path) -> None:
    """Errors in the package, which has other settings, are not the user's."""
    assert {*deepsiam.__all__} <= {*re.findall(r"deepsiam\.(\w+)", SCRIPT)}
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "mypy.ini").write_text("".join(["[mypy]\n", *(f"[mypy-{name}.*]\n{SKIPPED}" for name in LARGE)]))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "script.py", "wrong.py"]
    variables = {**toy.environment(), "MYPYPATH": str(toy.ROOT)}
    said = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True).stdout
    first, second = (line for line in said.splitlines() if ": error: " in line)
    assert first.startswith('wrong.py:3: error: Unexpected keyword argument "precison"'), said
    assert second.startswith("wrong.py:4: error: "), said
    assert 'expression has type "int", variable has type "str"' in second
    assert said.endswith("Found 2 errors in 1 file (checked 2 source files)\n"), said


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
