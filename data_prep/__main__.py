"""`python -m data_prep COMMAND`: from text to shards and collections, and a look at what they hold."""

import argparse
import os
import sys
from pathlib import Path

from data_prep import collection, docstring_dataset, docstrings, inspection, shards, tokenizer
from data_prep.errors import InputError, exit_on_input_error, printable


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; 0, or 2 with one line on stderr for each thing that is wrong."""
    options = _parser().parse_args(arguments)
    with exit_on_input_error("data_prep"):
        return options.run(options)


def _docstrings(options: argparse.Namespace) -> int:
    chosen = docstring_dataset.Options(options.vocab_size, options.chunk_tokens, options.chunks_per_shard)
    print(docstring_dataset.build(options.out, chosen, docstrings.installed(), options.workers))
    return 0


def _verify(options: argparse.Namespace) -> int:
    problems = shards.verify(options.directory)
    for _, problem in problems:
        print(f"data_prep: {printable(problem)}", file=sys.stderr)
    if problems:
        return 2
    manifest = shards.Manifest.load(options.directory)
    totals = ", ".join(f"{manifest.total(name):,} {name}" for name in ("documents", "segments", "tokens", "bytes"))
    print(f"{options.directory}: {len(manifest.shards):,} shards are whole: {totals}")
    return 0


def _inspect(options: argparse.Namespace) -> int:
    print(inspection.describe(options.directory, options.shard, options.chunk, options.documents))
    return 0


def _collection(options: argparse.Namespace) -> int:
    collection.tokenize(options.directory, tokenizer.load(options.tokenizer))
    opened = collection.Collection.open(options.directory)
    splits = {split: len(opened.qrels(split)) for split in opened.splits()}
    if not splits:
        raise InputError(f"{options.directory / 'qrels'}: no SPLIT.tsv with relevance judgements")
    queries = ", ".join(f"{number:,} of {split}" for split, number in splits.items())
    print(f"{options.directory}: {len(opened.corpus):,} documents, {len(opened.queries):,} queries ({queries})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("docstrings", help="shards and a collection from the installed packages")
    defaults = docstring_dataset.Options()
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    for name, default, what in [
        ("--vocab-size", defaults.vocab_size, "pieces of the tokenizer's vocabulary"),
        ("--chunk-tokens", defaults.chunk_tokens, "tokens of a chunk"),
        ("--chunks-per-shard", defaults.chunks_per_shard, "chunks of a shard"),
        ("--workers", os.cpu_count() or 1, "processes; they do not change the output"),
    ]:
        build.add_argument(name, type=_positive, default=default, metavar="N", help=f"{what} ({default})")
    build.set_defaults(run=_docstrings)

    check = commands.add_parser("verify", help="read every byte of a folder of shards")
    check.add_argument("directory", type=Path, metavar="DIR", help="folder with manifest.json")
    check.set_defaults(run=_verify)

    look = commands.add_parser("inspect", help="print documents and lengths of a shard")
    look.add_argument("directory", type=Path, metavar="DIR", help="folder with manifest.json")
    look.add_argument("--shard", type=int, default=0, metavar="N", help="which shard (0)")
    look.add_argument("--chunk", type=int, default=0, metavar="N", help="which chunk of it (0)")
    look.add_argument("--documents", type=int, default=5, metavar="N", help="how many documents to print (5)")
    look.set_defaults(run=_inspect)

    tokens = commands.add_parser("collection", help="tokenise a BEIR folder")
    tokens.add_argument("directory", type=Path, metavar="DIR", help="corpus.jsonl, queries.jsonl, qrels/")
    tokens.add_argument("--tokenizer", type=Path, required=True, metavar="PATH", help="a tokenizer.json")
    tokens.set_defaults(run=_collection)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
