"""Keep a training run going: start the launcher, restart it after a fault, give up when it makes no progress.

deepsiam supervise [--tries N] -- deepsiam pretrain RECIPE [options] [key=value ...]
python -m trainer.supervise [--tries N] -- deepspeed [launcher options] --module trainer.pretrain RECIPE [key=value ...]

The launcher's exit code is not enough: it is 0 even when the launcher's own child was killed, and the exit codes of
other hosts may be lost. So a training run has succeeded when its last step's checkpoint is intact, and has made
progress when its newest checkpoint is newer than at the start.
"""

import signal
import sys
from collections.abc import Sequence

from deepsiam.data_prep.common import streams
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.interface import launch


def main(argv: Sequence[str] | None = None) -> int:
    """Supervise the training that a command line names; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = [*words, "--"].index("--")
    tries = parser().parse_args(words[:end]).tries
    with exit_on_input_error("supervise"):
        from deepsiam.trainer.cluster.hosts.supervisor import STOP_SIGNALS, Training, supervise

        training = Training.from_command(launch.launcher_command(words[end + 1 :]))
        streams.set_up(lossy=True)
        signals: list[int] = []
        for number in STOP_SIGNALS:
            signal.signal(number, lambda received, _: signals.append(received))
        return supervise(training, tries, signals)


def parser() -> Parser:
    """Return the parser of the words before `--`."""
    parser = Parser(
        prog="deepsiam supervise",
        usage="%(prog)s [--tries N] -- deepsiam pretrain RECIPE [options] [key=value ...]",
        description="Start a training; restart it after a fault as long as it makes progress. Its command, after --, "
        "may also be deepspeed's, srun's or another launcher's.",
    )
    parser.add_argument(
        "--tries",
        type=positive,
        default=3,
        help="give up after this many starts in a row without a newer checkpoint (default 3)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
