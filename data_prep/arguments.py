"""The command-line arguments that prepare a data set."""

import argparse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.argument_types import margin, named, positive, share
from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.provenance import MOST_SHARDS
from deepsiam.data_prep.prepare import stages, uploading
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.options import Options
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.sources.source import Source
from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.tokenizers.tokenizer import KINDS

MAX_BAD = 0.001


def add_preparation(parser: argparse.ArgumentParser, name: str, source: Source) -> None:
    """Declare the arguments that `options_of` reads, for one source."""
    parser.set_defaults(source=name)
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="file, folder, or file://, http(s)://, s3:// file")
    parser.add_argument(
        "--out", type=named, required=True, metavar="DIR", help="folder to write or resume; may be an s3:// address"
    )
    parser.add_argument("--work", type=Path, metavar="DIR", help="local working folder, if --out is an s3:// address")
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="for a trial: read only the first N records (pages, books, lines)"
    )
    parser.add_argument(
        "--accept-truncated", action="store_true", help="use the beginning of a truncated file instead of refusing it"
    )
    for option in source.options:
        kind: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"action": "store_true"}
        flags = [f"--{name.replace('_', '-')}" for name in (option.name, option.also) if name]
        parser.add_argument(*flags, dest=f"source_{option.name}", default=option.default, help=option.help, **kind)
    _add_stages(parser, source)
    _add_output(parser)
    run = parser.add_argument_group("how to run it; this does not change the output")
    workers_argument(run)
    run.add_argument(
        "--rejected", type=Path, metavar="FILE", help="write what is left out, with the reasons, as JSON lines"
    )
    run.add_argument(
        "--max-bad", type=share, default=MAX_BAD, metavar="SHARE", help=f"tolerated share of bad records ({MAX_BAD})"
    )


def _add_stages(parser: argparse.ArgumentParser, source: Source) -> None:
    group = parser.add_argument_group("what to do with the text besides normalising it")
    group.add_argument("--repair", action="store_true", help="undo mojibake")
    group.add_argument("--scrub", action="store_true", help="replace e-mail addresses, phone numbers and IP addresses")
    parser.set_defaults(paragraphs=False)
    if source.paragraphs:
        group.add_argument("--paragraphs", action="store_true", help="do not split paragraphs into sentences")
    group.add_argument("--min-words", type=positive, default=0, metavar="N", help="drop documents with fewer words")
    group.add_argument("--max-words", type=positive, metavar="N", help="drop documents with more words")
    group.add_argument(
        "--language",
        default=source.language or language_id.ANY,
        metavar="CODE",
        help=f"keep only documents in this language, such as en; any: keep all ({source.language or language_id.ANY})",
    )
    group.add_argument("--english", dest="language", action="store_const", const="en", help="the same as --language en")
    group.add_argument(
        "--any-language", dest="language", action="store_const", const="any", help="the same as --language any"
    )
    group.add_argument(
        "--language-threshold",
        type=margin,
        default=language_id.THRESHOLD,
        metavar="NATS",
        help=f"log-odds against the language above which a document is dropped ({language_id.THRESHOLD:g})",
    )
    group.add_argument("--quality", action="store_true", help="drop documents that do not read as text")
    group.add_argument(
        "--decontaminate",
        action="append",
        default=[],
        metavar="COLLECTION",
        help="drop documents that share a run of words with an evaluation collection (or BEIR folder); may be repeated",
    )
    group.add_argument("--ngram", type=positive, default=13, metavar="N", help="length of such a run, in words (13)")
    group.add_argument(
        "--keep-duplicates", action="store_true", help="keep all documents with the same text, not only one"
    )
    group.add_argument(
        "--near-duplicates",
        type=share,
        metavar="SIMILARITY",
        help="drop documents at least this similar to another one, such as 0.8",
    )
    group.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="DIR",
        help="drop documents that another prepared data set contains",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    defaults = Options("")
    group = parser.add_argument_group("what to write")
    group.add_argument(
        "--held-out",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of threads, books and pages to hold out (0)",
    )
    group.add_argument(
        "--text-only", action="store_true", help="write the cleaned text, without tokens: the first of two steps"
    )
    group.add_argument("--tokenizer", default="", metavar="PATH", help="an existing tokenizer.json, or its folder")
    group.add_argument(
        "--tokenizer-kind",
        choices=KINDS,
        default=defaults.tokenizer_kind,
        help="kind of tokenizer to train, if none is given",
    )
    for flag, default, what in (
        ("--vocab-size", defaults.vocab_size, "size of its vocabulary"),
        ("--chunk-tokens", defaults.chunk_tokens, "tokens in a chunk, the unit of reading"),
    ):
        group.add_argument(flag, type=positive, default=default, metavar="N", help=f"{what} ({default})")
    group.add_argument("--shards", type=_shards, metavar="N", help="number of shards (one for each 64 MiB of text)")
    group.add_argument(
        "--part",
        type=_part,
        default=Part(),
        metavar="K/N",
        help="prepare only one of N disjoint parts; `merge` joins them",
    )


def options_of(chosen: argparse.Namespace) -> Options:
    """Return the options that the arguments set."""
    choices: dict[str, Any] = {}
    for option in SOURCES[chosen.source].options:
        value = getattr(chosen, f"source_{option.name}")
        choices[option.name] = option.parse(value) if option.metavar and isinstance(value, str) else value
    language = {"language": language_id.known(chosen.language), "language_threshold": chosen.language_threshold}
    itself = bool(SOURCES[chosen.source].language)  # the source filters by language, not a stage
    if itself:
        choices |= language
    return Options(
        source=chosen.source,
        choices=choices,
        stages=stages.StageOptions(
            repair=chosen.repair,
            scrub=chosen.scrub,
            sentences=not chosen.paragraphs,
            min_words=chosen.min_words,
            max_words=chosen.max_words,
            quality=chosen.quality,
            decontaminate=tuple(chosen.decontaminate),
            ngram=chosen.ngram,
            **({} if itself else language),
        ),
        keep_duplicates=chosen.keep_duplicates,
        near_duplicates=chosen.near_duplicates,
        against=tuple(chosen.against),
        held_out=chosen.held_out,
        tokenizer=chosen.tokenizer,
        tokenizer_kind=chosen.tokenizer_kind,
        vocab_size=chosen.vocab_size,
        chunk_tokens=chosen.chunk_tokens,
        shards=chosen.shards,
        part=chosen.part,
        limit=chosen.limit,
        accept_truncated=chosen.accept_truncated,
        text=chosen.text_only,
    )


def local_folder(chosen: argparse.Namespace) -> Path:
    """Return the folder to make a data set in."""
    if not urls.is_remote(chosen.out) or chosen.out.startswith("file://"):
        if chosen.work is not None:
            raise InputError("--work: is for an --out that is an s3:// address; the data set is made in --out itself")
        return Path(urlsplit(chosen.out).path if urls.is_remote(chosen.out) else chosen.out)
    uploading.check(chosen.out)
    if chosen.work is None:
        raise InputError("--out: an address needs --work DIR too, a local folder to make the data set in")
    return chosen.work


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
