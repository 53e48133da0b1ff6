"""The array job of docs/data.md: its parts merge to the bytes of one run."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.data_prep import raw
from tests.data_prep.raw import contents
from tests.toy import ROOT, environment

PARTS = 3


@pytest.mark.slow
def test_the_array_job_makes_the_bytes_of_one_run(tmp_path: Path) -> None:
    block = re.search(r"^    #!/bin/bash\n(?:    .*\n)+", (ROOT / "docs" / "data.md").read_text(), re.MULTILINE)
    assert block
    script = tmp_path / "job.sh"
    script.write_text(textwrap.dedent(block[0]))
    dump = raw.write_wikipedia(tmp_path / "pages-articles.xml", raw.texts(60))
    vocabulary = raw.vocabulary(tmp_path / "tokenizer.json")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # the job's `python` is this one
    names = {"PATH": path, "INPUT": dump, "OUT": tmp_path / "out", "TOKENIZER": vocabulary, "SLURM_ARRAY_TASK_COUNT": PARTS}
    for part in range(1, PARTS + 1):
        slurm = {"SLURM_ARRAY_TASK_ID": str(part), "SLURM_CPUS_PER_TASK": "1", **{k: str(v) for k, v in names.items()}}
        done = subprocess.run(
            ["bash", script], cwd=ROOT, env={**environment(), **slurm}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    parts = sorted((tmp_path / "out.parts").iterdir())
    assert len(parts) == PARTS
    raw.run("merge", *parts, "--out", tmp_path / "out")
    raw.run("wikipedia", dump, "--out", tmp_path / "whole", "--tokenizer", vocabulary)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
