"""Count cases on the fake GPU: python -m tests.fake_gpu prints a line of JSON for each; --write replaces the budgets.

A process of its own, for the fake GPU patches torch, transformers and DeepSpeed for good.
"""

import json
import os
import sys
import traceback
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.fake_gpu import device, watch

BUDGETS = Path(__file__).with_name("budgets.json")
VERSIONS = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}


def main() -> None:
    """Count all cases."""
    device.install()
    watch.install()
    from tests.fake_gpu import passes, steps

    found: dict[str, dict[str, Any]] = {}
    for name, count in chain(passes.cases(), steps.cases()):
        try:
            found[name] = count()
        except Exception as error:  # each case is reported by its own test
            found[name] = {"error": "".join(traceback.format_exception(error))}
        print(json.dumps({"case": name, **found[name]}), flush=True)
    if sys.argv[1:] == ["--write"]:
        kept = {name: counts for name, counts in found.items() if not name.startswith("fault/")}
        errors = [counts["error"] for counts in kept.values() if "error" in counts]
        assert not errors, errors[0]
        budgets = {name: {**counts, "waits": sum(counts["waits"].values())} for name, counts in kept.items()}
        cases = ",\n".join(f"  {json.dumps(name)}: {json.dumps(budget)}" for name, budget in budgets.items())
        BUDGETS.write_text(f'{{\n "versions": {json.dumps(VERSIONS)},\n "cases": {{\n{cases}\n }}\n}}\n')
    os._exit(0)


if __name__ == "__main__":
    main()
