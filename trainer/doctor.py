"""Check, before a launch, what a training would meet on its hosts: `deepsiam doctor RECIPE --hostfile H`.

Prints a line for each check: ok, warning or wrong, with what to do. The exit code is 2 if anything is wrong.
"""

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import port_number, positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.doctor"):
        from deepsiam.trainer.cluster.hosts.doctor import report

        report(arguments)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(prog="deepsiam doctor", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", type=Path, metavar="RECIPE")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("--hostfile", type=Path, help="file with the hosts (default: this host alone)")
    hosts.add_argument(
        "--ranks", type=positive, help="number of ranks on this host (default: one for each GPU, or one)"
    )
    parser.add_argument(
        "--include", default="", help="only these hosts or slots of the hostfile, in DeepSpeed's syntax"
    )
    parser.add_argument(
        "--master_port", type=port_number, default=29500, help="port where the ranks meet (%(default)s)"
    )
    parser.add_argument("--master_addr", default="", help="address of the first host where the ranks meet")
    parser.add_argument("--ssh_port", type=port_number, help="port of the hosts' ssh servers")
    parser.add_argument("--full", action="store_true", help="verify every shard instead of a sample")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


if __name__ == "__main__":
    main()
