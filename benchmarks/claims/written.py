"""Texts with a teacher's vectors, and queries that a language model wrote for texts: what is learned without labels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.claims import material
from benchmarks.claims.rankers import command, encoder
from benchmarks.common.training import run_or_exit
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError

# of fine-tuning on labels or written queries with the teacher's vectors beside them
BESIDE: Mapping[str, Any] = {"method.loss": {"softmax": 1.0, "vectors": 5.0, "batch_kl": 1.0}}


class Data(NamedTuple):
    """A collection, and the teacher's vectors of its texts."""

    collection: Path
    teacher: Path


def add_writer_options(parser: argparse.ArgumentParser, documents: int) -> None:
    """Add --writer, --examples and --documents; `check_writer` checks them."""
    parser.add_argument("--writer", type=Path, metavar="FOLDER", help="a causal language model that writes queries")
    parser.add_argument("--examples", type=Path, metavar="FILE", help="what it is shown")
    parser.add_argument(
        "--documents", type=positive, default=documents, metavar="N", help="that it is asked about (%(default)s)"
    )


def check_writer(chosen: argparse.Namespace) -> None:
    """Raise InputError where only one of --writer and --examples is given."""
    if (chosen.writer is None) != (chosen.examples is None):
        raise InputError("--writer: a small model needs --examples, and these a writer: give both")


def embed(texts: Path, out: Path) -> Data:
    """Write all-MiniLM's vectors of a collection, unless that is done."""
    if not (out / "manifest.json").is_file():
        run_or_exit(command("trainer.embed", str(encoder()), str(texts), "--out", str(out)))
    return Data(texts, out)


def write_queries(
    out: Path, texts: Mapping[str, str], tokenizer: Path, writer: Path, examples: Path, documents: int
) -> Data:
    """Ask a language model about some of these texts (by id), as docs/from_documents.md does, unless that is done."""
    file, made = out / "documents.jsonl", {name: out / name for name in ("texts", "asked", "mined")}
    if not file.is_file():
        material.write(file, (json.dumps({"id": name, "text": text}) for name, text in texts.items()))
    collected = ["documents", str(file), "--tokenizer", str(tokenizer), "--out", str(made["texts"])]
    asked = ["--collection", str(made["texts"]), "--model", str(writer), "--examples", str(examples)]
    asked += ["--kinds", "question", "keywords", "--documents", str(documents), "--document-tokens", "96", "--show"]
    mined = ["--collection", str(made["asked"]), "--split", "train", "--system", "bm25", "--consistent", "20"]
    commands = {
        "texts": command("data_prep", "collection", *collected),
        "asked": command("trainer.ask", *asked, "--out", str(made["asked"])),
        "mined": command("trainer.mine", *mined, "--margin", "0", "--out", str(made["mined"])),
    }
    for name, words in commands.items():
        if not (made[name] / "manifest.json").is_file():
            run_or_exit(words)
    return embed(made["mined"], out / "vectors")
