"""Run commands as a user types them, in the clone from which this module is started: `python -m tests.typed FILE`.

The first command of each way to start a module runs as it is typed. Later ones, which differ from it in the module and
its arguments, are forked from a process that has their imports: `tests.warm`, of the clone. So is what DeepSpeed's
launcher starts when it is given hosts: `tests.warm_python`.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import toy, warm_python

# what comes before the module: it is run as one process, or by ranks of this host
PYTHON = re.compile(r"\S*python -m ")
DEEPSIAM = re.compile(r"deepsiam (?=\w)")
DEEPSPEED = re.compile(r"\S*deepspeed (?:-q )?--num_accelerators (\d+) (?:--master_port \d+ )?--module ")
LAUNCHER = re.compile(r"^\S*deepspeed .*?(?=--module )")


def main() -> None:
    """Run the commands of a file, one a line; end with the first that fails."""
    started: set[re.Pattern[str]] = set()
    with TemporaryDirectory() as programs, warm_python.programs(Path(programs)):
        for command in Path(sys.argv[1]).read_text().splitlines():
            print(f"$ {command}", flush=True)
            done = run(command, started, programs)
            print(done.stdout, done.stderr, flush=True)
            if done.returncode:
                sys.exit(f"ended with code {done.returncode}: {command}")


def run(command: str, started: set[re.Pattern[str]], programs: str) -> subprocess.CompletedProcess[str]:
    """Run one command; add its way to start a module to those that have been started."""
    way = PYTHON.match(command) or DEEPSPEED.match(command) or DEEPSIAM.match(command)
    if not way or way.re not in started:
        if way:
            started.add(way.re)
        # the last one counts: at the default port another suite on this machine may be meeting
        command = LAUNCHER.sub(rf"\g<0>--master_port {toy.free_port()} ", command)
        forked = "" if way else f"PATH={programs}:$PATH; "
        line = ["bash", "-c", f"set -e; source .venv/bin/activate; {forked}{command}"]
        typed = {name: value for name, value in toy.environment().items() if name != "OMP_NUM_THREADS"}  # of a test
        typed["PYTHONPATH"] = os.getcwd()  # the command `deepsiam` would take the checkout that .venv was made for
        return subprocess.run(line, capture_output=True, text=True, env=typed)
    module, *arguments = shlex.split(command[way.end() :])
    if way.re is DEEPSIAM:
        own_port = ["--", "--master_port", toy.free_port()] if "--gpus" in arguments else []
        return toy.run("deepsiam", module, *arguments, *own_port, OMP_NUM_THREADS="1")
    if way.re is PYTHON:
        return toy.run(module, *arguments)
    return toy.launch(int(way.group(1)), module, *arguments, OMP_NUM_THREADS=1)  # ranks share the cores


if __name__ == "__main__":
    main()
