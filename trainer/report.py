"""Report on every run below a folder: plots, and a page of HTML with everything: python -m trainer.report FOLDER.

The page shows queries and scores where the folder has the run files of FOLDER/results.json:
python -m trainer.evaluate ... --write-runs FOLDER/rankings --out FOLDER/results.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    folder = parser().parse_args(argv).folder
    with exit_on_input_error("trainer.report"):
        from deepsiam.trainer.analysis.report import report

        report(folder)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(prog="deepsiam report", description="Plot every run below a folder.")
    parser.add_argument("folder", type=Path, help="the folder that holds the runs and results.json")
    return parser


if __name__ == "__main__":
    main()
