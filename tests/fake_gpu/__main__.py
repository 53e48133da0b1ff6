"""Count cases on the fake GPU: python -m tests.fake_gpu passes|steps prints a line of JSON for each.

A process of its own, for the fake GPU patches torch, transformers and DeepSpeed for good.
"""

import json
import os
import sys
import traceback

from tests.fake_gpu import device, watch


def main() -> None:
    """Count the cases of one file."""
    device.install()
    watch.install()
    if sys.argv[1] == "steps":
        from tests.fake_gpu.steps import cases
    else:
        from tests.fake_gpu.passes import cases  # type: ignore[assignment]
    for name, count in cases():
        try:
            counted = count()
        except Exception as error:  # each case is reported by its own test
            counted = {"error": "".join(traceback.format_exception(error))}
        print(json.dumps({"case": name, **counted}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
