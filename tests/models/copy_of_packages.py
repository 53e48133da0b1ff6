"""Run a command of a copy of the packages: python -m tests.models.copy_of_packages FOLDER MODULE ARGUMENT ...

Forked with the imports of the others (`tests.warm`), it forgets the packages and keeps what they import.
"""

import os
import sys

from tests import warm

if __name__ == "__main__":
    folder, *command = sys.argv[1:]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("deepsiam", "trainer")]:
        del sys.modules[name]
    os.chdir(folder)
    sys.path.insert(0, folder)
    warm.become(*command)
