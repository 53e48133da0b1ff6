"""The command-line arguments that prepare a data set."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.argument_types import margin, named, positive, share
from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.provenance import MOST_SHARDS
from deepsiam.data_prep.prepare import uploading
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.options import Options
from deepsiam.data_prep.prepare.stages import StageOptions
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.sources.source import Source
from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.tokenizers.tokenizer import KINDS

MAX_BAD = 0.001


def add_preparation(parser: argparse.ArgumentParser, name: str, source: Source) -> None:
    """Declare the arguments that `options_of` reads, for one source."""
    parser.set_defaults(source=name)
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="file, folder, or file://, http(s)://, s3://, hf:// file"
    )
    help_ = "folder to write or resume; may be an s3:// address"
    parser.add_argument("--out", type=named, required=True, metavar="DIR", help=help_)
    add_options(
        parser,
        ("--work", "local working folder, if --out is an s3:// address", "DIR", Path, None),
        ("--limit", "for a trial: read only the first N records (pages, books, lines)", "N", positive, None),
        ("--accept-truncated", "use the beginning of a truncated file instead of refusing it"),
    )
    for option in source.options:
        kind: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"action": "store_true"}
        flags = [f"--{name.replace('_', '-')}" for name in (option.name, option.also) if name]
        parser.add_argument(*flags, dest=f"source_{option.name}", default=option.default, help=option.help, **kind)
    _add_stages(parser, source)
    _add_output(parser)
    run = parser.add_argument_group("how to run it; this does not change the output")
    workers_argument(run)
    add_options(
        run,
        ("--rejected", "write what is left out, with the reasons, as JSON lines", "FILE", Path, None),
        ("--max-bad", f"tolerated share of bad records ({MAX_BAD})", "SHARE", share, MAX_BAD),
    )


def add_options(group: Any, *rows: tuple[Any, ...]) -> None:
    """Declare options: flag, help and, unless it is a switch, metavar, type (`list`: may be repeated) and default."""
    for flag, text, *value in rows:
        options: dict[str, Any] = {"action": "store_true"}
        if value:
            metavar, kind, default = value
            options = {"type": kind} if kind is not list else {"action": "append"}
            options |= {"metavar": metavar, "default": default}
        group.add_argument(flag, help=text, **options)


def _add_stages(parser: argparse.ArgumentParser, source: Source) -> None:
    group = parser.add_argument_group("what to do with the text besides normalising it")
    language, threshold = source.language or language_id.ANY_LANGUAGE, language_id.THRESHOLD
    add_options(
        group, ("--repair", "undo mojibake"), ("--scrub", "replace e-mail addresses, phone numbers and IP addresses")
    )
    parser.set_defaults(sentences=True)
    language_help = f"keep only documents in this language, such as en; any: keep all ({language})"
    if source.paragraphs:
        flag_help = "do not split paragraphs into sentences"
        group.add_argument("--paragraphs", dest="sentences", action="store_false", help=flag_help)
    add_options(
        group,
        ("--min-words", "drop documents with fewer words", "N", positive, 0),
        ("--max-words", "drop documents with more words", "N", positive, None),
        ("--language", language_help, "CODE", str, language),
    )
    for flag, code in (("--english", "en"), ("--any-language", language_id.ANY_LANGUAGE)):
        flag_help = f"the same as --language {code}"
        group.add_argument(flag, dest="language", action="store_const", const=code, default=language, help=flag_help)
    near_help = "drop documents at least this similar to another one, such as 0.8"
    threshold_help = f"log-odds against the language above which a document is dropped ({threshold:g})"
    decontaminate_help = (
        "drop documents that share a run of words with an evaluation collection (or BEIR folder); may be repeated"
    )
    add_options(
        group,
        ("--language-threshold", threshold_help, "NATS", margin, threshold),
        ("--quality", "drop documents that do not read as text"),
        ("--decontaminate", decontaminate_help, "COLLECTION", list, []),
        ("--ngram", "length of such a run, in words (13)", "N", positive, 13),
        ("--keep-duplicates", "keep all documents with the same text, not only one"),
        ("--near-duplicates", near_help, "SIMILARITY", share, None),
        ("--against", "drop documents that another prepared data set contains", "DIR", list, []),
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    defaults = Options("")
    group = parser.add_argument_group("what to write")
    add_options(group, ("--held-out", "share of threads, books and pages to hold out (0)", "SHARE", share, 0.0))
    help_ = "write the cleaned text, without tokens: the first of two steps"
    group.add_argument("--text-only", dest="text", action="store_true", help=help_)
    add_options(group, ("--tokenizer", "an existing tokenizer.json, or its folder", "PATH", str, ""))
    help_ = "kind of tokenizer to train, if none is given"
    group.add_argument("--tokenizer-kind", choices=KINDS, default=defaults.tokenizer_kind, help=help_)
    vocabulary, chunk = defaults.vocab_size, defaults.chunk_tokens
    add_options(
        group,
        ("--vocab-size", f"size of its vocabulary ({vocabulary})", "N", positive, vocabulary),
        ("--chunk-tokens", f"tokens in a chunk, the unit of reading ({chunk})", "N", positive, chunk),
        ("--shards", "number of shards (one for each 64 MiB of text)", "N", _shards, None),
        ("--part", "prepare only one of N disjoint parts; `merge` joins them", "K/N", _part, Part()),
    )


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options that the arguments set."""
    choices: dict[str, Any] = {}
    for option in SOURCES[arguments.source].options:
        value = getattr(arguments, f"source_{option.name}")
        choices[option.name] = option.parse(value) if option.metavar and isinstance(value, str) else value
    keys: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in vars(arguments).items()}
    keys["language"] = language_id.known(arguments.language)
    if SOURCES[arguments.source].language:  # the source filters by language, not a stage
        choices |= {name: keys.pop(name) for name in ("language", "language_threshold")}
    keys["choices"] = choices
    keys["stages"] = StageOptions(**{f.name: keys[f.name] for f in fields(StageOptions) if f.name in keys})
    return Options(**{f.name: keys[f.name] for f in fields(Options)})


def local_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder to make a data set in."""
    if not urls.is_remote(arguments.out) or arguments.out.startswith("file://"):
        if arguments.work is not None:
            raise InputError("--work: is for an --out that is an s3:// address; the data set is made in --out itself")
        return Path(urlsplit(arguments.out).path if urls.is_remote(arguments.out) else arguments.out)
    uploading.check(arguments.out)
    if arguments.work is None:
        raise InputError("--out: an address needs --work DIR too, a local folder to make the data set in")
    return arguments.work


def workers_argument(parser: Any) -> None:
    """Declare --workers."""
    default = usable_cores()
    text = f"processes; they do not change the output ({default})"
    parser.add_argument("--workers", type=positive, default=default, metavar="N", help=text)


def _shards(text: str) -> int:
    number = positive(text)
    if number > MOST_SHARDS:
        raise argparse.ArgumentTypeError(f"{number:,} is more than {MOST_SHARDS:,}")
    return number


def _part(text: str) -> Part:
    try:
        return Part.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
