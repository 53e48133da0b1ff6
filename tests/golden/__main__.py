"""Record golden values with the tests that compare them: `python -m tests.golden --write [pytest's arguments]`."""

import os
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--write" in arguments:
        arguments.remove("--write")
        os.environ["GOLDEN_WRITE"] = "1"
    sys.exit(pytest.main([str(Path(__file__).parent), "-p", "no:cacheprovider", *arguments]))
