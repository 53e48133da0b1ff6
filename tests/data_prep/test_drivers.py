"""The array job and the Dask driver of docs/many_machines.md: their parts merge to the bytes of one run."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests import toy
from tests.data_prep import raw
from tests.data_prep.raw import contents

PARTS = 2


def block(first: str) -> str:
    """Return the code block of docs/many_machines.md whose first line begins with `first`."""
    found = re.search(
        rf"^    {re.escape(first)}.*\n(?:    .*\n|\n(?=    ))+", (toy.ROOT / "docs/many_machines.md").read_text(), re.M
    )
    assert found, first
    return textwrap.dedent(found[0])


def run(*command: Any, **variables: Any) -> None:
    """Run a command in the project's folder; the test fails if it does."""
    path = f"{toy.forked_python().parent}{os.pathsep}{os.environ['PATH']}"  # the block's `python` is forked
    env = {**toy.environment(), "PATH": path, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(list(map(str, command)), cwd=toy.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a dump, a vocabulary and the data set of one run."""
    folder = tmp_path_factory.mktemp("given")
    dump = raw.write_wikipedia(folder / "pages-articles.xml", raw.texts(60))
    vocabulary = raw.vocabulary(folder / "tokenizer.json")
    raw.run("wikipedia", dump, "--out", folder / "whole", "--tokenizer", vocabulary)
    return dump, vocabulary, folder / "whole"


@pytest.mark.slow
def test_the_array_job_makes_the_bytes_of_one_run(given: tuple[Path, Path, Path], tmp_path: Path) -> None:
    dump, vocabulary, whole = given
    script = tmp_path / "job.sh"
    script.write_text(block("#!/bin/bash"))
    names = {"INPUT": dump, "OUT": tmp_path / "out", "TOKENIZER": vocabulary, "SLURM_ARRAY_TASK_COUNT": PARTS}
    for part in range(1, PARTS + 1):
        run("bash", script, SLURM_ARRAY_TASK_ID=part, SLURM_CPUS_PER_TASK=1, **names)
    parts = sorted((tmp_path / "out.parts").iterdir())
    assert len(parts) == PARTS
    raw.run("merge", *parts, "--out", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.slow
def test_the_dask_driver_makes_the_bytes_of_one_run(given: tuple[Path, Path, Path], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the package of the extra `dask`")
    dump, vocabulary, whole = given
    script = tmp_path / "driver.py"
    script.write_text(block("import subprocess, sys"))
    quiet = {"threads_per_worker": 1, "dashboard_address": None, "protocol": "tcp://", "host": "127.0.0.1"}
    # Dask leaves OMP_NUM_THREADS set; another number of threads would change the rounding in later tests
    with (
        patch.dict(os.environ),
        patch.object(sys, "executable", str(toy.forked_python())),  # what the workers, threads of this process, start
        distributed.LocalCluster(2, processes=False, **quiet) as cluster,
    ):
        given_words = (tmp_path / "out", PARTS, dump, "--tokenizer", vocabulary, "--workers", 1)
        run(sys.executable, script, cluster.scheduler_address, *given_words)
    assert len(list((tmp_path / "out.parts").iterdir())) == PARTS
    assert contents(tmp_path / "out") == contents(whole)
