"""Turn text into shards and collections, and inspect them: `deepsiam prepare`, or `python -m data_prep`."""

import argparse
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from deepsiam.data_prep.arguments import add_options, add_preparation, local_folder, options_of, workers_argument
from deepsiam.data_prep.collections import build, collection
from deepsiam.data_prep.collections.files.text_columns import parse_columns
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.argument_types import folder, pattern, positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error, printable
from deepsiam.data_prep.common.hub import is_address, local_files
from deepsiam.data_prep.common.parser import Parser, end_of_help
from deepsiam.data_prep.demo import dataset, distributions
from deepsiam.data_prep.prepare import merging, output, run, texts, uploading
from deepsiam.data_prep.shards import export, find, stats, verify
from deepsiam.data_prep.shards.manifest import Manifest, shards_folder
from deepsiam.data_prep.sources import cleaned
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.tokenizers import tokenizer, unknown


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, or 2 after one line on stderr for each problem."""
    with exit_on_input_error("data_prep"):
        words = sys.argv[1:] if argv is None else argv
        arguments = parser(*_listed(words)).parse_args(words)
        return arguments.run(arguments)


def _listed(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the sources and the formats to list: other packages' only where help is asked for or one is named."""
    if not words or {"-h", "--help"} & set(words):
        return tuple(SOURCES), tuple(FORMATS)
    named = words[:1] if words[0] in SOURCES else ()
    return tuple(dict.fromkeys([*SOURCES.ours, *named])), FORMATS.ours


def _prepare(arguments: argparse.Namespace) -> int:
    inputs = [location for name in arguments.inputs for location in SOURCES[arguments.source].expand(name)]
    inputs = [file for location in inputs for file in local_files(location)]
    out = local_folder(arguments)
    print(run.prepare(inputs, out, options_of(arguments), arguments.workers, arguments.max_bad, arguments.rejected))
    if uploading.is_wanted(arguments.out):
        uploading.upload(out, arguments.out)
        print(f"{arguments.out}: upload complete")
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    print(merging.merge(arguments.parts, arguments.out, arguments.workers))
    return 0


def _stats(arguments: argparse.Namespace) -> int:
    _require_shards(arguments.directory)
    print(stats.run(arguments.directory, arguments.json, arguments.plots))
    return 0


def _docstrings(arguments: argparse.Namespace) -> int:
    options = dataset.DemoOptions(arguments.vocab_size, arguments.chunk_tokens, arguments.chunks_per_shard)
    tok = tokenizer.load(arguments.tokenizer) if arguments.tokenizer else None
    print(dataset.build(arguments.out, options, distributions.files(), arguments.workers, tok))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    # a collection that lacks its manifest still has its texts or their arrays
    parts = [arguments.directory / name for name in ("corpus", "corpus.jsonl")]
    if collection.is_collection(arguments.directory) or any(part.exists() for part in parts):
        fails = _print_problems(collection.verify(arguments.directory), f"{arguments.directory}: every array is whole")
        return 2 if fails else 0
    folder = cleaned.folder_of(arguments.directory)
    message = f"{folder}: every file of cleaned text is whole"
    fails = folder is not None and _print_problems(cleaned.problems(folder), message)
    if folder is not None and not output.is_finished(arguments.directory):
        return 2 if fails else 0
    for directory in output.folders_of(arguments.directory):
        problems = verify.verify(directory)
        for _, problem in problems:
            print(f"data_prep: {printable(problem)}", file=sys.stderr)
        if problems:
            fails = True
            continue
        manifest = Manifest.load(directory)
        totals = ", ".join(f"{manifest.total(name):,} {name}" for name in ("documents", "segments", "tokens", "bytes"))
        print(f"{directory}: {len(manifest.shards):,} shards are whole: {totals}")
    return 2 if fails else 0


def _print_problems(problems: Iterable[str], otherwise: str) -> bool:
    """Print every problem on stderr, or `otherwise` if there are none; return whether there were problems."""
    has_problems = False
    for problem in problems:
        has_problems = True
        print(f"data_prep: {printable(problem)}", file=sys.stderr)
    if not has_problems:
        print(otherwise)
    return has_problems


def _export(arguments: argparse.Namespace) -> int:
    folder = cleaned.folder_of(arguments.directory)
    if not folder:
        _require_shards(arguments.directory)
    lines = texts.lines(folder) if folder else export.json_lines(shards_folder(arguments.directory))
    if not arguments.webdataset:
        export.export(lines, arguments.out)
    elif arguments.out:
        export.export_samples(lines, arguments.out)
    else:
        raise InputError("export --webdataset: name the folder to make with --out DIR")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    _require_shards(arguments.directory)
    folder = shards_folder(arguments.directory)
    for document in find.find(folder, arguments.documents, name=arguments.id, pattern=arguments.grep):
        print(document)
    return 0


def _require_shards(directory: Path) -> None:
    """Raise InputError for what this package makes, but is no shards."""
    if collection.is_collection(directory):
        raise InputError(f"{directory}: is a collection: name shards, or a data set")
    if cleaned.folder_of(directory) and not output.is_finished(directory):
        raise InputError(f"{directory}: is cleaned text: make shards of it, with the command cleaned, and name them")


def _collection(arguments: argparse.Namespace) -> int:
    name, out = arguments.format, arguments.out
    inputs = [Path(file) for location in arguments.inputs for file in _split_files(location)]
    columns = parse_columns(arguments.columns) if arguments.columns else ()
    if name not in FORMATS:
        if inputs or out:
            formats = ", ".join(FORMATS)
            raise InputError(f"{name}: not a format; write collection FORMAT INPUT... --out DIR with one of: {formats}")
        name, inputs, out = "beir", [Path(name)], Path(name)  # tokenise a BEIR folder in place
    elif not inputs or not out:
        raise InputError(f"collection {name}: name its files or folder, and --out DIR")
    opened = build.build(
        name,
        inputs,
        out,
        tokenizer.load(arguments.tokenizer),
        arguments.workers,
        strict=arguments.strict,
        columns=columns,
    )
    queries = ", ".join(f"{number:,} of {split}" for split, number in opened.manifest["counts"]["splits"].items())
    labelled = f"{len(opened.queries):,} queries ({queries})" if queries else "no queries"
    print(printable(f"{out}: {len(opened.corpus):,} documents, {labelled}"))
    tokens = (part.tokens(i) for part in (opened.queries, opened.corpus) for i in range(len(part)))
    print(unknown.describe(tokens, opened.tokenizer.unk, out))
    for remark in opened.manifest.get("remarks", []):
        print(printable(remark))
    return 0


def _split_files(location: str) -> list[str]:
    """Return the files of an input, which may be SPLIT=ADDRESS of a data set on the hub; any other one as it is."""
    split, equals, address = location.partition("=")
    if equals and is_address(address):
        return [f"{split}={file}" for file in local_files(address)]
    return local_files(location)


def parser(sources: Sequence[str] | None = None, formats: Sequence[str] | None = None) -> Parser:
    """Return the parser of all commands; it has a command for each of the sources, and lists these formats."""
    sources, formats = sources or tuple(SOURCES), formats or tuple(FORMATS)
    parser = Parser(
        prog="deepsiam prepare",
        description="Turn text into shards and collections, and inspect them.",
        example="deepsiam prepare text notes/ --out data/notes",
        page="docs/data.md",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in sources:
        source = SOURCES[name]
        prepare = commands.add_parser(
            name,
            help=f"make shards from {source.summary}",
            description=f"Make shards from {source.summary}.",
            example=f"deepsiam prepare {name} {source.example}",
            page="docs/data.md",
        )
        add_preparation(prepare, name, source)
        prepare.set_defaults(run=_prepare)
    docstrings = "make shards and a collection from the docstrings of Python packages"
    labelled = "make a collection from labelled texts in a published format, to fine-tune and evaluate"
    for name, run_command, summary, add_arguments in (
        ("merge", _merge, "join the parts of a data set, prepared with --part", _add_merge),
        ("stats", _stats, "count what a folder of shards holds", _add_stats),
        ("docstrings", _docstrings, docstrings, _add_docstrings),
        ("verify", _verify, "read and check every byte of a folder of shards, or of a collection", _add_verify),
        (
            "export",
            _export,
            "write the documents of a data set as text: cleaned, or decoded from its tokens",
            _add_export,
        ),
        ("inspect", _inspect, "print the first documents of shards, or those with an id or a pattern", _add_inspect),
        ("collection", _collection, labelled, partial(_add_collection, formats=formats)),
    ):
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        add_arguments(command)
        command.set_defaults(run=run_command)
    return parser


def _add_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="+", type=Path, metavar="PART", help="the --out folder of every part")
    parser.add_argument("--out", type=folder, required=True, metavar="DIR", help="folder to write")
    workers_argument(parser)


def _add_stats(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="also draw plots into this folder")


def _add_docstrings(parser: argparse.ArgumentParser) -> None:
    defaults = dataset.DemoOptions()
    parser.add_argument("--out", type=folder, required=True, metavar="DIR", help="folder to write")
    for option, default, help_text in [
        ("--vocab-size", defaults.vocab_size, "pieces of the tokenizer's vocabulary"),
        ("--chunk-tokens", defaults.chunk_tokens, "tokens of a chunk"),
        ("--chunks-per-shard", defaults.chunks_per_shard, "chunks of a shard"),
    ]:
        add_options(parser, (option, f"{help_text} ({default})", "N", positive, default))
    existing = "an existing tokenizer.json, or its folder, instead of a new one"
    add_options(parser, ("--tokenizer", existing, "PATH", Path, None))
    workers_argument(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "shards, a data set, or cleaned text")
    group = parser.add_mutually_exclusive_group(required=True)
    add_options(group, ("--jsonl", "as JSON lines"), ("--webdataset", "as tars of webdataset samples, .txt and .json"))
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write, in place of stdout; or folder of tars")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--documents", type=positive, default=5, metavar="N", help="number of documents to print (5)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--id", metavar="ID", help="print the document with this id, from any shard")
    matching = "print documents that match, from any shard; upper and lower case are the same"
    group.add_argument("--grep", type=pattern, metavar="REGEX", help=matching)


def _add_collection(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    indent = 2 + max(map(len, formats)) + 2
    lines = (f"  {name}".ljust(indent) + FORMATS[name].summary for name in formats)
    wrapped = (textwrap.fill(line, 100, subsequent_indent=" " * indent, break_on_hyphens=False) for line in lines)
    example = "deepsiam prepare collection beir scifact --tokenizer runs/seed --out data/mine"
    parser.epilog = "\n".join(["formats:", *wrapped, "", end_of_help(example, "docs/collections.md")])
    format_help = "a format listed below; or a BEIR folder alone, to tokenise it in place"
    parser.add_argument("format", metavar="FORMAT", help=format_help)
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="files or folders, or hf://datasets/...")
    parser.add_argument("--out", type=folder, metavar="DIR", help="folder to write")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="PATH", help="a tokenizer.json, or its folder")
    columns = "names of a table's columns, such as query=anchor,document=positive,negative=hard,label=score"
    add_options(parser, ("--columns", columns, "ROLE=NAME,...", str, None))
    add_options(parser, ("--strict", "refuse judgements of unknown queries or documents instead of leaving them out"))
    workers_argument(parser)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "shards, a data set, a collection, or cleaned text")


def _add_folder(parser: argparse.ArgumentParser, contents: str = "shards, or a data set") -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help=contents)


if __name__ == "__main__":
    sys.exit(main())
