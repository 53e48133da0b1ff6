"""Dialogues from Reddit: the comments (`RC_*`) and submissions (`RS_*`) of Pushshift's dumps, as lines of JSON.

As in Mazaré et al. (2018), whose pairs the Poly-encoder was pre-trained on, each pair of successive utterances of a
thread is an example. Utterances are dropped if they are `unwanted` (deleted, by bots, only links, too short or too
long) or in another language. A pair costs the same at any depth (threads.py), so depth has no limit. A dropped
utterance leaves a gap in its thread: replies to it have no parent, so no pair joins utterances that did not follow one
another. An utterance that is too short to tell its language is kept if its thread is in the language.
"""

import re
from collections.abc import Iterator
from typing import Any

from deepsiam.data_prep.sources.document import BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.plain_text import Line, json_line, line_pieces, require_characters
from deepsiam.data_prep.sources.reddit import unwanted
from deepsiam.data_prep.sources.reddit.markdown import paragraphs
from deepsiam.data_prep.sources.reddit.threads import OTHER_LANGUAGE, Utterance, best_pairs, cut, select
from deepsiam.data_prep.sources.reddit.unwanted import LONGEST_MARKDOWN, MAX_CHARACTERS
from deepsiam.data_prep.sources.source import PAIRS, Choices, Join, Option, Piece, Source, finder
from deepsiam.data_prep.text import language_id

LONGEST_LINE = 1 << 22  # bytes

_ID = re.compile(r"(t[13]_)?([0-9a-z]{1,16})")
_DUMP = re.compile(r"R[CS]_[^/]*", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def _thread(piece: Piece) -> str:
    """Return the thread of the utterance on a line; some other text if the line is damaged."""
    try:
        return _names(json_line(piece.content, LONGEST_LINE))[1]
    except BadRecordError:
        return piece.where


def _documents(fragments: list[Any], choices: Choices) -> Iterator[Document | Dropped]:
    def wanted(text: str) -> bool:
        return bool(language_id.odds_against(text, choices["language"]) < choices["language_threshold"])

    thread = [Utterance(*fragment) for fragment in fragments]
    if not choices["pairs"]:
        yield from cut(thread, wanted)
        return
    utterances = yield from select(thread, wanted)
    yield from best_pairs(utterances)


def _utterance(line: Line, choices: Choices) -> Utterance:
    """Return the utterance on a line; raise BadRecordError with what is wrong with the line."""
    record = json_line(line, LONGEST_LINE)
    name, thread = _names(record)
    comment = isinstance(record.get("body"), str)
    texts = [record["body"]] if comment else [record["title"], str(record.get("selftext") or "")]
    created = _whole(record.get("created_utc"))
    if created is None:
        raise BadRecordError("created_utc is missing or not of Reddit's kind")
    score = _whole(record.get("score"))
    reason = unwanted.record(record, texts, score, choices)
    text = "" if reason else _plain(texts)
    reason = reason or unwanted.text(texts, text)
    against = 0.0 if reason else language_id.odds_against(text, choices["language"])
    if against >= choices["language_threshold"]:
        reason = OTHER_LANGUAGE
    return Utterance(
        thread,
        created,
        name,
        _parent(record.get("parent_id"), thread) if comment else "",
        _whole(record.get("retrieved_on") or record.get("retrieved_utc")) or 0,
        score or 0,
        text if reason in ("", OTHER_LANGUAGE) else "",
        reason,
        not reason and against >= 0,
        _author(record) if choices["pairs"] else "",
        len(_plain(texts[:1])) if choices["pairs"] and not comment and not reason else 0,
    )


def _names(record: dict[str, Any]) -> tuple[str, str]:
    """Return the full names of an utterance and of its thread; raise BadRecordError if one is missing."""
    if isinstance(record.get("body"), str):
        kind = "t1_"
    elif isinstance(record.get("title"), str):
        kind = "t3_"
    else:
        raise BadRecordError("neither a comment (with a body) nor a submission (with a title)")
    name = _name(record.get("id"), kind)
    thread = _name(record.get("link_id"), "t3_") if kind == "t1_" else name
    if not name or not thread:
        raise BadRecordError(f"{'link_id' if name else 'id'} is missing or not of Reddit's kind")
    return name, thread


def _name(value: Any, kind: str) -> str:
    """Return the full name of an id with or without its kind; "" if it is not an id or of another kind."""
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    return kind + match[2] if match and match[1] in (None, kind) else ""


def _parent(value: Any, thread: str) -> str:
    """Return the full name of a parent, which some dumps give as a number (a comment) or null (the submission)."""
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


def _author(record: dict[str, Any]) -> str:
    """Return who wrote an utterance; "" if that is not known; raise BadRecordError where UTF-8 cannot hold the name."""
    author = record.get("author")
    if not isinstance(author, str) or author == "[deleted]":
        return ""
    require_characters(author)
    return author


def _whole(value: Any) -> int | None:
    """Return a number of seconds or votes, which some dumps give as a string; None if it is neither."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else None


def _plain(texts: list[str]) -> str:
    """Return a comment, or a title with as many first paragraphs of its selftext as fit in MAX_CHARACTERS."""
    first_paragraphs, *other_texts = [paragraphs(text) if len(text) <= LONGEST_MARKDOWN else [] for text in texts]
    content = " ".join(first_paragraphs)
    for paragraph in other_texts[0] if other_texts else []:
        if len(content) + 1 + len(paragraph) > MAX_CHARACTERS:
            break
        content += " " + paragraph
    return content.strip()


# Comments (`RC_*`) and submissions (`RS_*`), in any order. Every line that is not blank becomes exactly one of these: a
# Bad, a Dropped, or a segment after the context of a document (threads.py defines a document).
REDDIT = Source(
    summary="Reddit's comments and submissions, as dialogues",
    find=finder("reddit", _DUMP, "no RC_* or RS_* file in this folder; name the dumps, or their folder"),
    pieces=lambda file, _: line_pieces(file.path, LONGEST_LINE),
    read=lambda _, piece, choices: [_utterance(piece.content, choices)],
    paragraphs=False,
    dialogues=True,
    later=0.6,
    example="RC_2019-12.zst RS_2019-12.zst --out data/reddit --min-score 1",
    options=(
        Option("subreddits", None, "keep only the subreddits named in a file, one a line", "FILE", unwanted.subreddits),
        Option(
            "without",
            (),
            "leave out the subreddits named in a file, one a line",
            "FILE",
            unwanted.subreddits,
            also="exclude_subreddits",
        ),
        Option("bots", (), "leave out the authors named in a file too, one a line", "FILE", unwanted.authors),
        Option("min_score", None, "leave out utterances with a lower score", "N", unwanted.least_score),
        PAIRS,
    ),
    join=Join(_thread, _documents),
    language="en",
)
