"""Count cases on the fake GPU: python -m tests.fake_gpu prints a line of JSON for each.

A process of its own, for the fake GPU patches torch, transformers and DeepSpeed for good.
"""

import json
import os
import traceback
from itertools import chain

from tests.fake_gpu import device, watch


def main() -> None:
    """Count all cases."""
    device.install()
    watch.install()
    from tests.fake_gpu import passes, steps

    for name, count in chain(passes.cases(), steps.cases()):
        try:
            counted = count()
        except Exception as error:  # each case is reported by its own test
            counted = {"error": "".join(traceback.format_exception(error))}
        print(json.dumps({"case": name, **counted}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
