"""Plan a training on machines that you do not have: computed, not measured.

python -m trainer.plan RECIPE [key=value ...] --hosts 1,8,64,128 --gpus 8 --gpu h100

Nothing is trained, and the recipe's data need not exist. docs/scaling.md explains what the model takes into account.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import margin, positive, positive_number, share
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.training.engine.hardware import DEVICES, PRODUCTS, START


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.plan"):
        from deepsiam.trainer.cluster.planning.plan import print_plan

        print_plan(arguments)


def _numbers(text: str) -> list[int]:
    return sorted({positive(word) for word in text.split(",")})


def _efficiency(text: str) -> float:
    if (value := positive_number(text)) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0, up to 1")
    return value


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(prog="deepsiam plan", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="recipe of a pre-training")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as batch.micro=4")
    parser.add_argument(
        "--hosts", type=_numbers, default=[1], metavar="N,N,...", help="numbers of hosts to plan for (1)"
    )
    parser.add_argument("--gpus", type=positive, default=8, help="ranks on each host (%(default)s)")
    parser.add_argument("--gpu", choices=DEVICES, default="h100", help="device of a rank (%(default)s)")
    parser.add_argument("--vocabulary", type=positive, help="size of the vocabulary, in place of trunk.vocab_size")
    compute = parser.add_argument_group("compute")
    compute.add_argument(
        "--efficiency", type=_efficiency, default=PRODUCTS, help="share of the peak that products attain (%(default)s)"
    )
    compute.add_argument(
        "--operation",
        type=margin,
        default=1e6 * START,
        help="us that Python takes to start a kernel (%(default)g)",
    )
    compute.add_argument("--measured", type=Path, help="JSON of benchmarks.step, instead of these two")
    compute.add_argument("--case", help="case in that file (the last one with the recipe's method)")
    links = parser.add_argument_group("links: bandwidth in GB/s and direction, latency in us a message")
    links.add_argument(
        "--network", type=positive_number, help="bandwidth between hosts (that of servers with this GPU)"
    )
    links.add_argument("--latency", type=margin, help="latency between hosts (10; with --gpu cpu 100)")
    links.add_argument("--within", type=positive_number, help="bandwidth between ranks of a host (that of the GPU)")
    links.add_argument("--within-latency", type=margin, help="latency within a host (3; with --gpu cpu 30)")
    links.add_argument(
        "--link-share", type=_efficiency, default=0.8, help="attained share of both bandwidths (%(default)s)"
    )
    links.add_argument(
        "--overlap", type=share, help="share of communication that overlaps with compute (0.5 for ZeRO-3, else 0)"
    )
    parser.add_argument(
        "--disk", type=positive_number, default=2.0, help="GB/s of shards that a host reads (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the plan as JSON")
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw the plan")
    return parser


if __name__ == "__main__":
    main()
