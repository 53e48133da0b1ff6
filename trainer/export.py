"""Export a trained model as a folder that other libraries load, with the same embeddings and scores as the run's.

Most of these libraries have one limit of length for queries and documents: a longer query is not cut as in the run.

python -m trainer.export RUN OUT [--format adapters] [--with-decoder] [--push OWNER/NAME [--private]]
python -m trainer.export INDEX OUT.parquet

A Siamese network becomes a SentenceTransformer (from version 3 on), a cross-encoder a CrossEncoder, a ColBERT a PyLate
model, a Poly-encoder two Hugging Face encoders with scoring code in the README.md, a sparse model a SparseEncoder. A
pre-training run becomes a plain Hugging Face model. An index of one vector per document becomes a table of ids and
vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_args(argv)
    with exit_on_input_error("trainer.export"):
        if arguments.private and not arguments.push:
            raise InputError("--private: is for a repository to upload to: name it with --push OWNER/NAME")
        if arguments.out.suffix == ".parquet":
            if arguments.push:
                raise InputError("--push: is for a model, not a table of vectors: leave it out")
            from deepsiam.trainer.ranking.export.vectors_table import export_vectors

            print(export_vectors(arguments.run, arguments.out))
            return
        from deepsiam.trainer.interface.export import export

        options = {name: getattr(arguments, name) for name in ("format", "with_decoder", "push", "private")}
        export(arguments.run, arguments.out, **options)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(
        prog="deepsiam export",
        description="Export a trained model as a folder that other libraries load, or an index as a table.",
        example="deepsiam export runs/mine exported/mine",
        page="docs/search.md",
    )
    parser.add_argument("run", type=Path, help="a run folder (its newest checkpoint), a checkpoint, or an index")
    parser.add_argument("out", type=Path, help="the folder to write; of an index, a file OUT.parquet")
    parser.add_argument(
        "--format",
        choices=["stock", "adapters"],
        default="stock",
        help="stock (default): as Hugging Face's libraries and PyLate load; adapters: those of a run, as peft loads",
    )
    parser.add_argument("--with-decoder", action="store_true", help="also export the heads of a pre-training run")
    parser.add_argument("--push", metavar="OWNER/NAME", help="also upload it to this repository of the hub")
    parser.add_argument("--private", action="store_true", help="make the repository a private one, if it is new")
    return parser


if __name__ == "__main__":
    main()
