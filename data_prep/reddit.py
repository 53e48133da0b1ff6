"""Dialogues from Reddit: the comments (`RC_*`) and submissions (`RS_*`) of Pushshift's dumps, as lines of JSON.

As in Mazaré et al. (2018), whose pairs the Poly-encoder was pre-trained on, each pair of successive utterances of a
thread is an example. Left out are utterances that are deleted, of bots, nothing but links, shorter than FEWEST or
longer than MOST characters, or not English. A pair costs the same at any depth (`threads`), so depth has no limit.
An utterance that is left out stays a gap in its thread: what replies to it has no parent, and so no pair is made of
utterances that did not follow one another.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep.clean import is_english, word_set
from data_prep.document import Document
from data_prep.files import make_directory, os_errors_as_input_errors
from data_prep.markdown import is_links_only, paragraphs
from data_prep.partitions import Partitions
from data_prep.record import Bad, Dropped
from data_prep.threads import Utterance, cut

LONGEST_LINE = 1 << 22  # bytes
LONGEST_MARKDOWN = 100_000  # characters; Reddit allows 40,000, some of which are entities
FEWEST, MOST = 5, 2048  # characters of an utterance
ASCII_SHARE = 0.9  # of the letters of an English utterance, at least
FEW_WORDS = 10  # an utterance of fewer is judged by its letters alone: it may hold no function word

BOTS = word_set("automoderator autotldr imgur_rehost totesmessenger ubottu ubotu")  # the last two are on IRC
_BOT = re.compile(r".*bot\d*", re.I)
_DELETED = re.compile(r"\[ ?(?:deleted|removed)[^\[\]]*\]", re.I)
_ID = re.compile(r"(t[13]_)?([0-9a-z]{1,16})")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def documents(
    files: Iterable[tuple[str, Iterable[bytes]]],
    scratch: Path,
    english: bool = True,
    unwanted: frozenset[str] = frozenset(),
) -> Iterator[Document | Bad | Dropped]:
    """Yields the dialogues of some files (name, lines), comments and submissions in any order.

    Every line that is not blank comes out exactly once: as Bad, as Dropped, or as a segment beyond the context of a
    document (`threads` says what a document is). The documents are the same, in the same order, whatever the order
    of the files and lines.

    Args:
        files: the name and the lines of each file; a comment's thread may be in any of them.
        scratch: a folder with room for twice the text, in which a folder is made and removed again.
        english: whether utterances that are not English are dropped.
        unwanted: the names of subreddits that are dropped, in lower case.

    Raises:
        InputError: the scratch folder cannot be written.
    """
    make_directory(scratch)
    with os_errors_as_input_errors(scratch, "write"):
        folder = tempfile.TemporaryDirectory(prefix="reddit-", dir=scratch)
    with folder:
        partitions = Partitions(Path(folder.name))
        for file, lines in files:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    utterance = _utterance(line, english, unwanted)
                except ValueError as error:
                    yield Bad(file, f"line {number}", str(error))
                else:
                    partitions.add(utterance)
        for thread in partitions:
            if isinstance(thread, Dropped):
                yield thread
            else:
                yield from cut(thread)


def _utterance(line: bytes, english: bool, unwanted: frozenset[str]) -> Utterance:
    """The utterance on a line; ValueError with what is wrong with it."""
    record = _json_object(line)
    if isinstance(record.get("body"), str):
        kind, texts = "t1_", [record["body"]]
    elif isinstance(record.get("title"), str):
        kind, texts = "t3_", [record["title"], str(record.get("selftext") or "")]
    else:
        raise ValueError("neither a comment (with a body) nor a submission (with a title)")
    name = _name(record.get("id"), kind)
    thread = _name(record.get("link_id"), "t3_") if kind == "t1_" else name
    created = _whole(record.get("created_utc"))
    if not name or not thread or created is None:
        missing = "id" if not name else "link_id" if not thread else "created_utc"
        raise ValueError(f"{missing} is missing or not of Reddit's kind")
    reason = _unwanted_record(record, texts, unwanted)
    text = "" if reason else _plain(texts)
    reason = reason or _unwanted_text(texts, text, english)
    return Utterance(
        thread,
        created,
        name,
        _parent(record.get("parent_id"), thread) if kind == "t1_" else "",
        _whole(record.get("retrieved_on") or record.get("retrieved_utc")) or 0,
        _whole(record.get("score")) or 0,
        "" if reason else text,
        reason,
    )


def _json_object(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE:,} bytes")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _name(value: Any, kind: str) -> str:
    """The full name of an id with or without its kind; "" where it is none, or of another kind."""
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    return kind + match[2] if match and match[1] in (None, kind) else ""


def _parent(value: Any, thread: str) -> str:
    """The full name of a parent: for a time the dumps held numbers for comments and null for the submission."""
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
    """A number of seconds or votes, which some dumps hold as a string."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else None


def _plain(texts: list[str]) -> str:
    """A comment, or a title with as many of the first paragraphs of its selftext as go into MOST characters."""
    first, *rest = [paragraphs(text) if len(text) <= LONGEST_MARKDOWN else [] for text in texts]
    plain = " ".join(first)
    for paragraph in rest[0] if rest else []:
        if len(plain) + 1 + len(paragraph) > MOST:
            break
        plain += " " + paragraph
    return plain.strip()


def _unwanted_record(record: dict[str, Any], texts: list[str], unwanted: frozenset[str]) -> str:
    """Why an utterance is dropped whatever it says; "" where it is not."""
    author = str(record.get("author")).lower()
    if record.get("removed_by_category") or any(_DELETED.fullmatch(text.strip()) for text in texts):
        return "deleted"
    if author in BOTS or _BOT.fullmatch(author):
        return "bot"
    if record.get("quarantine") or record.get("quarantined"):
        return "quarantined"
    return "unwanted subreddit" if str(record.get("subreddit")).lower() in unwanted else ""


def _unwanted_text(texts: list[str], plain: str, english: bool) -> str:
    """Why an utterance is dropped for what it says; "" where it is not."""
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
    if not text.isascii():
        letters = [c for c in text if c.isalpha()]
        if sum(map(str.isascii, letters)) < ASCII_SHARE * len(letters):
            return False
    return is_english(text) if len(text.split()) >= FEW_WORDS else any(map(str.isalpha, text))
