"""Pre-train, fine-tune, evaluate and export a small SEED encoder, as `make demo`: `deepsiam demo`, in any folder.

It writes data/demo and runs/demo there; trainings that were interrupted are resumed.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.interface import launch

STEPS = """
prepare docstrings --out data/demo
pretrain recipes/demo_seed.yaml --resume
pretrain recipes/demo_ict.yaml --resume
finetune recipes/demo_siamese_random.yaml --resume
finetune recipes/demo_siamese.yaml --resume
finetune recipes/demo_colbert.yaml --resume
evaluate --collection data/demo/collection --split test --system bm25 --system from_random=runs/demo/from_random \
--system from_seed=runs/demo/from_seed --system 'reranked=bm25 > 100 +runs/demo/colbert' \
--system 'fused=fuse(bm25, from_seed)' --write-runs runs/demo/rankings --out runs/demo/results.json
export runs/demo/from_seed runs/demo/export
report runs/demo
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps; return the exit code of the first that fails, or 0."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = [*words, "--"].index("--")
    arguments = parser().parse_args(words[:end])
    with exit_on_input_error("trainer.demo"):
        require("evaluate", "bm25s", "ir_measures", "matplotlib", feature="the demo")  # now, not after its trainings
        gpus = arguments.gpus or default_ranks()
        for step in STEPS.strip().splitlines():
            verb, *rest = shlex.split(step)
            if verb in launch.TRAININGS:
                rest += ["--gpus", str(gpus), *words[end:]]
            print(f"deepsiam {shlex.join([verb, *rest])}", flush=True)
            if not arguments.dry_run and (code := subprocess.call([sys.executable, "-m", "deepsiam", verb, *rest])):
                return code
    return 0


def parser() -> Parser:
    """Return the parser of the words before `--`."""
    parser = Parser(
        prog="deepsiam demo",
        usage="%(prog)s [options] [-- further options of DeepSpeed's launcher]",
        description="Pre-train, fine-tune, evaluate and export a small encoder: eleven minutes on two cores. "
        "Writes data/demo and runs/demo in this folder.",
        example="deepsiam demo",
        page="docs/results.md",
    )
    parser.add_argument(
        "--gpus", type=int, choices=(1, 2), help="ranks of each training (1 where there is one GPU, else 2)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    return parser


def default_ranks() -> int:
    """Return 1 where torch sees one GPU, otherwise 2, also on a CPU."""
    import torch

    return 1 if torch.accelerator.is_available() and torch.accelerator.device_count() == 1 else 2


if __name__ == "__main__":
    sys.exit(main())
