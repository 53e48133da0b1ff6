"""Run a command beside an installed package: python -m tests.examples.on_path FOLDER MODULE ARGUMENT ...

The processes are forked (`tests.warm`), so they read no PYTHONPATH.
"""

import sys

from tests import warm

if __name__ == "__main__":
    of_launcher = [word for word in sys.argv[1:] if word.startswith("--local_rank")]
    folder, module, *arguments = [word for word in sys.argv[1:] if word not in of_launcher]
    sys.path.insert(0, folder)
    warm.become(module, *of_launcher, *arguments)
