"""Export a trained model as a folder that other libraries load, with the same embeddings and scores as the run's.

python -m trainer.export RUN OUT [--format onnx] [--with-decoder]

A Siamese network becomes a SentenceTransformer (from version 3 on), a cross-encoder a CrossEncoder, a ColBERT a PyLate
model, a Poly-encoder two Hugging Face encoders with scoring code in the README.md. A pre-training run becomes a plain
Hugging Face model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from data_prep.common.errors import exit_on_input_error
from data_prep.common.imports import without_collecting
from data_prep.common.parser import Parser

with without_collecting():
    from trainer.ranking.export.export import export_encoder
    from trainer.training.checkpoints.load import load_trained


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="trainer.export", description="Export a trained encoder.")
    parser.add_argument("run", type=Path, help="a run folder (its newest checkpoint) or a checkpoint folder")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument(
        "--format",
        choices=["stock", "onnx"],
        default="stock",
        help="stock (default): as Hugging Face's libraries and PyLate load; onnx: a graph of a Siamese network or a "
        "cross-encoder, by the extra onnx",
    )
    parser.add_argument("--with-decoder", action="store_true", help="also export the heads of a pre-training run")
    arguments = parser.parse_args(argv)
    with exit_on_input_error("trainer.export"):
        trained = load_trained(arguments.run)
        export_encoder(trained, arguments.out, arguments.with_decoder, onnx=arguments.format == "onnx")
        print(f"exported {trained.checkpoint} to {arguments.out}")


if __name__ == "__main__":
    main()
