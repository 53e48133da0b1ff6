"""Export a trained model as a folder that other libraries load, with the same embeddings and scores as the run's.

Most of these libraries have one limit of length for queries and documents: a longer query is not cut as in the run.

python -m trainer.export RUN OUT [--format onnx|adapters] [--with-decoder]
python -m trainer.export INDEX FILE.jsonl --format anserini

A Siamese network becomes a SentenceTransformer (from version 3 on), a cross-encoder a CrossEncoder, a ColBERT a PyLate
model, a Poly-encoder two Hugging Face encoders with scoring code in the README.md, a sparse model a SparseEncoder. A
pre-training run becomes a plain Hugging Face model. The documents of a sparse index become JSON lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import refuse_folder
from deepsiam.data_prep.common.imports import without_collecting
from deepsiam.data_prep.common.parser import Parser

with without_collecting():
    from deepsiam.trainer.ranking.export import export_anserini
    from deepsiam.trainer.ranking.export.export import export_encoder
    from deepsiam.trainer.ranking.indexes.registry import open_index
    from deepsiam.trainer.ranking.indexes.sparse import SparseIndex
    from deepsiam.trainer.training.checkpoints.load import load_trained


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="trainer.export",
        description="Export a trained model as a folder that other libraries load.",
        example="python -m trainer.export runs/mine exported/mine",
        page="docs/search.md",
    )
    parser.add_argument("run", type=Path, help="a run folder (its newest checkpoint) or a checkpoint folder; an index")
    parser.add_argument("out", type=Path, help="the folder to write; for anserini, the file")
    parser.add_argument(
        "--format",
        choices=["stock", "onnx", "adapters", "anserini"],
        default="stock",
        help="stock (default): as Hugging Face's libraries and PyLate load; onnx: a graph of a Siamese network or a "
        "cross-encoder (needs the extra onnx); adapters: those of a run alone, as peft loads; anserini: the documents "
        "of a sparse index, in JSON lines",
    )
    parser.add_argument("--with-decoder", action="store_true", help="also export the heads of a pre-training run")
    arguments = parser.parse_args(argv)
    if arguments.format == "anserini" and arguments.with_decoder:
        parser.error("--with-decoder is for a pre-training run: leave it out")
    with exit_on_input_error("trainer.export"):
        if arguments.format == "anserini":
            _export_documents(arguments.run, arguments.out)
            return
        trained = load_trained(arguments.run)
        export_encoder(trained, arguments.out, arguments.with_decoder, arguments.format)
        print(f"exported {trained.checkpoint} to {arguments.out}")


def _export_documents(directory: Path, out: Path) -> None:
    """Write the documents of a sparse index as JSON lines."""
    refuse_folder(out)
    index = open_index(directory)
    if not isinstance(index, SparseIndex):
        raise InputError(
            f"{directory}: --format anserini is for an index of a sparse model, this is one of {index.ranker.kind}"
        )
    collection = index.collection
    export_anserini.write(index.texts(), collection.corpus, collection.tokenizer.vocabulary(), out)
    print(f"exported {len(collection.corpus):,} documents of {directory} to {out}")


if __name__ == "__main__":
    main()
