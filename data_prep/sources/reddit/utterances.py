"""Dialogues from Reddit: the comments (`RC_*`) and submissions (`RS_*`) of Pushshift's dumps, as lines of JSON.

As in Mazaré et al. (2018), whose pairs the Poly-encoder was pre-trained on, each pair of successive utterances of a
thread is an example. Utterances are dropped if they are deleted, by bots, only links, not English, shorter than FEWEST
or longer than MOST characters. A pair costs the same at any depth (threads.py), so depth has no limit. A dropped
utterance leaves a gap in its thread: replies to it have no parent, so no pair joins utterances that did not follow one
another.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.common.files import read_bytes
from data_prep.sources.compressed import open_input
from data_prep.sources.document import Bad, Document, Dropped
from data_prep.sources.plain_text import Line, line_pieces
from data_prep.sources.reddit.markdown import is_links_only, paragraphs
from data_prep.sources.reddit.threads import Utterance, cut
from data_prep.sources.source import Choices, File, Join, Option, Piece, Source, named, walk
from data_prep.text.language import is_english, mostly_ascii, word_set

LONGEST_LINE = 1 << 22  # bytes
LONGEST_MARKDOWN = 100_000  # characters; Reddit allows 40,000, before escaping
FEWEST, MOST = 5, 2048  # characters of an utterance
FEW_WORDS = 10  # of an utterance; a shorter one may lack function words, so only its letters decide

BOTS = word_set("automoderator autotldr imgur_rehost totesmessenger ubottu ubotu")  # the last two are on IRC
_BOT = re.compile(r".*bot\d*", re.I)
_DELETED = re.compile(r"\[ ?(?:deleted|removed)[^\[\]]*\]", re.I)
_ID = re.compile(r"(t[13]_)?([0-9a-z]{1,16})")
_DUMP = re.compile(r"R[CS]_[^/]*", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def _find(paths: Sequence[Path]) -> Iterator[File]:
    return named("reddit", walk(paths, _DUMP, "no RC_* or RS_* file in this folder; name the dumps, or their folder"))


def _lines(file: File, _: Choices) -> Iterator[Piece]:
    with open_input(file.path) as stream:
        yield from line_pieces(stream, LONGEST_LINE)


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Utterance | Bad]:
    try:
        yield _utterance(piece.content, not choices["any_language"], frozenset(choices["without"]))
    except ValueError as error:
        yield Bad(str(file.path), piece.where, str(error))


def _thread(piece: Piece) -> str:
    """The thread of the utterance on a line; some other text if the line is damaged."""
    try:
        return _names(_json_object(piece.content))[1]
    except ValueError:
        return piece.where


def _documents(fragments: list[Any]) -> Iterator[Document | Dropped]:
    return cut([Utterance(*fragment) for fragment in fragments])


def subreddits(path: str) -> list[str]:
    """Read names from a file, one per line, into lower case, sorted; raise InputError if it cannot be read."""
    names = read_bytes(Path(path)).decode("utf-8", "replace").lower().split()
    return sorted({name.removeprefix("/").removeprefix("r/") for name in names})


def _utterance(line: Line, english: bool, unwanted: frozenset[str]) -> Utterance:
    """The utterance on a line; raise ValueError with what is wrong with the line."""
    record = _json_object(line)
    name, thread = _names(record)
    comment = isinstance(record.get("body"), str)
    texts = [record["body"]] if comment else [record["title"], str(record.get("selftext") or "")]
    created = _whole(record.get("created_utc"))
    if created is None:
        raise ValueError("created_utc is missing or not of Reddit's kind")
    reason = _unwanted_record(record, texts, unwanted)
    text = "" if reason else _plain(texts)
    reason = reason or _unwanted_text(texts, text, english)
    return Utterance(
        thread,
        created,
        name,
        _parent(record.get("parent_id"), thread) if comment else "",
        _whole(record.get("retrieved_on") or record.get("retrieved_utc")) or 0,
        _whole(record.get("score")) or 0,
        "" if reason else text,
        reason,
    )


def _names(record: dict[str, Any]) -> tuple[str, str]:
    """The full names of an utterance and of its thread; raise ValueError if one is missing."""
    if isinstance(record.get("body"), str):
        kind = "t1_"
    elif isinstance(record.get("title"), str):
        kind = "t3_"
    else:
        raise ValueError("neither a comment (with a body) nor a submission (with a title)")
    name = _name(record.get("id"), kind)
    thread = _name(record.get("link_id"), "t3_") if kind == "t1_" else name
    if not name or not thread:
        raise ValueError(f"{'link_id' if name else 'id'} is missing or not of Reddit's kind")
    return name, thread


def _json_object(line: Line) -> dict[str, Any]:
    if line.content is None:
        raise ValueError(f"longer than {LONGEST_LINE:,} bytes")
    try:
        record = json.loads(line.content)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _name(value: Any, kind: str) -> str:
    """The full name of an id with or without its kind; "" if it is not an id or of another kind."""
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    return kind + match[2] if match and match[1] in (None, kind) else ""


def _parent(value: Any, thread: str) -> str:
    """The full name of a parent, which some dumps give as a number (a comment) or null (the submission)."""
    if value is None:
        return thread
    if isinstance(value, int) and 0 < value < 36**16:
        digits = ""
        while value:
            value, digit = divmod(value, 36)
            digits = _BASE_36[digit] + digits
        return "t1_" + digits
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    return value if match and match[1] else ""


def _whole(value: Any) -> int | None:
    """A number of seconds or votes, which some dumps give as a string; None if it is neither."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else None


def _plain(texts: list[str]) -> str:
    """A comment, or a title with as many first paragraphs of its selftext as fit in MOST characters."""
    first, *rest = [paragraphs(text) if len(text) <= LONGEST_MARKDOWN else [] for text in texts]
    plain = " ".join(first)
    for paragraph in rest[0] if rest else []:
        if len(plain) + 1 + len(paragraph) > MOST:
            break
        plain += " " + paragraph
    return plain.strip()


def _unwanted_record(record: dict[str, Any], texts: list[str], unwanted: frozenset[str]) -> str:
    """Why an utterance is dropped regardless of its text; "" if it is not."""
    author = str(record.get("author")).lower()
    if record.get("removed_by_category") or any(_DELETED.fullmatch(text.strip()) for text in texts):
        return "deleted"
    if author in BOTS or _BOT.fullmatch(author):
        return "bot"
    if record.get("quarantine") or record.get("quarantined"):
        return "quarantined"
    return "unwanted subreddit" if str(record.get("subreddit")).lower() in unwanted else ""


def _unwanted_text(texts: list[str], plain: str, english: bool) -> str:
    """Why an utterance is dropped for its text; "" if it is not."""
    if len(texts[0]) > LONGEST_MARKDOWN or len(plain) > MOST:
        return "too long"
    if is_links_only(texts[0]):
        return "links only"
    if not plain:
        return "empty"
    if len(plain) < FEWEST:
        return "too short"
    return "not English" if english and not _reads_as_english(plain) else ""


def _reads_as_english(text: str) -> bool:
    if not mostly_ascii(text):
        return False
    return is_english(text) if len(text.split()) >= FEW_WORDS else any(map(str.isalpha, text))


# Comments (`RC_*`) and submissions (`RS_*`), in any order. Every line that is not blank becomes exactly one of these: a
# Bad, a Dropped, or a segment after the context of a document (threads.py defines a document).
REDDIT = Source(
    what="Reddit's comments and submissions, as dialogues",
    find=_find,
    pieces=_lines,
    read=_read,
    paragraphs=False,
    dialogues=True,
    options=(
        Option("any_language", False, "keep utterances that are not English"),
        Option("without", (), "leave out the subreddits named in a file, one a line", "FILE", subreddits),
    ),
    join=Join(_thread, _documents),
)
