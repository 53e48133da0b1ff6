"""Run a user's script in its folder: `python -m tests.trainer.interface.script FILE`."""

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    script = Path(sys.argv[1])
    os.chdir(script.parent)
    runpy.run_path(script.name)
