"""`python -m data_prep COMMAND`: from text to shards and collections, and a look at what they hold."""

import argparse
import sys
from pathlib import Path

from data_prep import (
    collection,
    dataset,
    docstring_dataset,
    docstrings,
    inspection,
    merging,
    preparation,
    shards,
    stats,
    tokenizer,
    uploading,
)
from data_prep.argument_types import positive
from data_prep.arguments import add_preparation, local_folder, options_of, workers_argument
from data_prep.errors import InputError, exit_on_input_error, printable
from data_prep.manifest import shards_folder
from data_prep.sources import SOURCES


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; 0, or 2 with one line on stderr for each thing that is wrong."""
    chosen = _parser().parse_args(arguments)
    with exit_on_input_error("data_prep"):
        return chosen.run(chosen)


def _prepare(chosen: argparse.Namespace) -> int:
    out = local_folder(chosen)
    print(preparation.prepare(chosen.inputs, out, options_of(chosen), chosen.workers, chosen.max_bad))
    if uploading.is_wanted(chosen.out):
        uploading.upload(out, chosen.out)
        print(f"{chosen.out}: has all of it")
    return 0


def _merge(chosen: argparse.Namespace) -> int:
    print(merging.merge(chosen.parts, chosen.out, chosen.workers))
    return 0


def _stats(chosen: argparse.Namespace) -> int:
    print(stats.run(chosen.directory, chosen.json, chosen.plots))
    return 0


def _docstrings(chosen: argparse.Namespace) -> int:
    options = docstring_dataset.Options(chosen.vocab_size, chosen.chunk_tokens, chosen.chunks_per_shard)
    print(docstring_dataset.build(chosen.out, options, docstrings.installed(), chosen.workers))
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    bad = False
    for directory in dataset.folders_of(chosen.directory):
        problems = shards.verify(directory)
        for _, problem in problems:
            print(f"data_prep: {printable(problem)}", file=sys.stderr)
        if problems:
            bad = True
            continue
        manifest = shards.Manifest.load(directory)
        totals = ", ".join(f"{manifest.total(name):,} {name}" for name in ("documents", "segments", "tokens", "bytes"))
        print(f"{directory}: {len(manifest.shards):,} shards are whole: {totals}")
    return 2 if bad else 0


def _inspect(chosen: argparse.Namespace) -> int:
    print(inspection.describe(shards_folder(chosen.directory), chosen.shard, chosen.chunk, chosen.documents))
    return 0


def _collection(chosen: argparse.Namespace) -> int:
    collection.tokenize(chosen.directory, tokenizer.load(chosen.tokenizer))
    opened = collection.Collection.open(chosen.directory)
    splits = {split: len(opened.qrels(split)) for split in opened.splits()}
    if not splits:
        raise InputError(f"{chosen.directory / 'qrels'}: no SPLIT.tsv with relevance judgements")
    queries = ", ".join(f"{number:,} of {split}" for split, number in splits.items())
    print(f"{chosen.directory}: {len(opened.corpus):,} documents, {len(opened.queries):,} queries ({queries})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, source in SOURCES.items():
        prepare = commands.add_parser(name, help=f"shards from {source.what}")
        add_preparation(prepare, name, source)
        prepare.set_defaults(run=_prepare)

    merge = commands.add_parser("merge", help="join the parts of a data set that were prepared with --part")
    merge.add_argument("parts", nargs="+", type=Path, metavar="PART", help="the --out folder of every part")
    merge.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    workers_argument(merge)
    merge.set_defaults(run=_merge)

    count = commands.add_parser("stats", help="what a folder of shards holds, in numbers")
    _folder_argument(count)
    count.add_argument("--json", action="store_true", help="as JSON")
    count.add_argument("--plots", type=Path, metavar="FOLDER", help="draw plots into a folder")
    count.set_defaults(run=_stats)

    build = commands.add_parser("docstrings", help="shards and a collection from the installed packages")
    defaults = docstring_dataset.Options()
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    for option, default, what in [
        ("--vocab-size", defaults.vocab_size, "pieces of the tokenizer's vocabulary"),
        ("--chunk-tokens", defaults.chunk_tokens, "tokens of a chunk"),
        ("--chunks-per-shard", defaults.chunks_per_shard, "chunks of a shard"),
    ]:
        build.add_argument(option, type=positive, default=default, metavar="N", help=f"{what} ({default})")
    workers_argument(build)
    build.set_defaults(run=_docstrings)

    check = commands.add_parser("verify", help="read every byte of a folder of shards")
    _folder_argument(check)
    check.set_defaults(run=_verify)

    look = commands.add_parser("inspect", help="print documents and lengths of a shard")
    _folder_argument(look)
    look.add_argument("--shard", type=int, default=0, metavar="N", help="which shard (0)")
    look.add_argument("--chunk", type=int, default=0, metavar="N", help="which chunk of it (0)")
    look.add_argument("--documents", type=int, default=5, metavar="N", help="how many documents to print (5)")
    look.set_defaults(run=_inspect)

    tokens = commands.add_parser("collection", help="tokenise a BEIR folder")
    tokens.add_argument("directory", type=Path, metavar="DIR", help="corpus.jsonl, queries.jsonl, qrels/")
    tokens.add_argument("--tokenizer", type=Path, required=True, metavar="PATH", help="a tokenizer.json, or its folder")
    tokens.set_defaults(run=_collection)
    return parser


def _folder_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder with manifest.json, or the one above")


if __name__ == "__main__":
    sys.exit(main())
