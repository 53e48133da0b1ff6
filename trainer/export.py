"""Export a trained model as a folder that other libraries load, with the same embeddings and scores as the run's.

Most of these libraries have one limit of length for queries and documents: a longer query is not cut as in the run.

python -m trainer.export RUN OUT [--format adapters] [--with-decoder]

A Siamese network becomes a SentenceTransformer (from version 3 on), a cross-encoder a CrossEncoder, a ColBERT a PyLate
model, a Poly-encoder two Hugging Face encoders with scoring code in the README.md, a sparse model a SparseEncoder. A
pre-training run becomes a plain Hugging Face model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="trainer.export",
        description="Export a trained model as a folder that other libraries load.",
        example="python -m trainer.export runs/mine exported/mine",
        page="docs/search.md",
    )
    parser.add_argument("run", type=Path, help="a run folder (its newest checkpoint) or a checkpoint folder")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument(
        "--format",
        choices=["stock", "adapters"],
        default="stock",
        help="stock (default): as Hugging Face's libraries and PyLate load; adapters: those of a run, as peft loads",
    )
    parser.add_argument("--with-decoder", action="store_true", help="also export the heads of a pre-training run")
    arguments = parser.parse_args(argv)
    with exit_on_input_error("trainer.export"):
        from deepsiam.trainer.interface.export import export

        export(arguments.run, arguments.out, format=arguments.format, with_decoder=arguments.with_decoder)


if __name__ == "__main__":
    main()
