"""Which utterances of Reddit are left out, whatever their language: by their record, then by their text."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.data_prep.sources.reddit.markdown import is_links_only
from deepsiam.data_prep.text.language import word_set
from deepsiam.data_prep.text.normalize import unescape

LONGEST_MARKDOWN = 100_000  # characters; Reddit allows 40,000, before escaping
LONGEST_NOTICE = 500  # characters
MIN_CHARACTERS, MAX_CHARACTERS = 5, 2048  # characters of an utterance
BOTS = word_set("automoderator autotldr imgur_rehost totesmessenger ubottu ubotu")  # the last two are on IRC

_BOT = re.compile(r".*bot[\d_-]*|bot[_-].*", re.I)
_SAYS_BOT = re.compile(r"\bI(?: a|['’])m (?:just )?a (?:\w+ )?bot\b", re.I)
_INTEGER = re.compile(r"[+-]?\d{1,9}", re.ASCII)
# what Reddit puts in place of a text; since 2021 with the reason: [ Removed by Reddit on account of violating the
# [content policy](/help/contentpolicy). ]
_TEXT = r"(?:(?:sorry|this|the|user|reddit|post|comment|submission|content|message|text|title|account),? ){0,4}"
_GONE = r"(?:(?:was|has been|is) )?(?:deleted|removed|unavailable|blocked|redacted|censored)\b"
_DELETED = re.compile(
    rf"(?:\W*\[\s*{_TEXT}{_GONE}(?:[^\[\]]|\[[^\[\]]*\](?:\([^()]*\))?)*\]){{1,3}}\W*"
    rf"|{_TEXT}{_GONE} by (?:(?:the|a|its) )?(?:reddit|users?|authors?|mod(?:erator)?s?|automoderator)\W*"
    r"|(?:sorry, )?this (?:post|comment) (?:was|has been) (?:deleted|removed)"
    r" by (?:reddit|the (?:person|moderators))\b.*",
    re.I,
)
_ESCAPES = re.compile(r"[\\*_~`]")  # of Markdown, with which some dumps have the notice


def record(utterance: Mapping[str, Any], texts: list[str], score: int | None, choices: Mapping[str, Any]) -> str:
    """Return why an utterance is left out regardless of its plain text; "" if it is not.

    Args:
        utterance: a line of a dump.
        texts: its Markdown: the body of a comment, or the title and text of a submission.
        score: its score; None if the dump has none, and then no bound applies.
        choices: `subreddits`, `without` and `bots`, sorted names in lower case, and `min_score`.
    """
    author = str(utterance.get("author")).lower()
    subreddit = str(utterance.get("subreddit")).lower()
    only = choices["subreddits"]
    notices = (_ESCAPES.sub("", unescape(text)).strip() for text in texts if len(text) <= LONGEST_NOTICE)
    if utterance.get("removed_by_category") or any(map(_DELETED.fullmatch, notices)):
        return "deleted"
    if author in BOTS or _among(author, choices["bots"]) or _BOT.fullmatch(author):
        return "bot"
    if utterance.get("quarantine") or utterance.get("quarantined"):
        return "quarantined"
    if _among(subreddit, choices["without"]) or (only is not None and not _among(subreddit, only)):
        return "unwanted subreddit"
    min_score = choices["min_score"]
    return "low score" if min_score is not None and score is not None and score < min_score else ""


def text(texts: list[str], words: str) -> str:
    """Return why an utterance is left out for its text, as Markdown and plain; "" if it is not."""
    if len(texts[0]) > LONGEST_MARKDOWN or len(words) > MAX_CHARACTERS:
        return "too long"
    if is_links_only(texts[0]):
        return "links only"
    if not words:
        return "empty"
    if len(words) < MIN_CHARACTERS:
        return "too short"
    return "bot" if _SAYS_BOT.search(words) else ""


def names(prefix: str, path: str) -> list[str]:
    """Read names from a file, one per line, with or without a prefix such as `r/`, into lower case, sorted."""
    listed = read_bytes(Path(path)).decode("utf-8-sig", "replace").lower().split()
    return sorted({name.removeprefix("/").removeprefix(prefix) for name in listed})


subreddits, authors = partial(names, "r/"), partial(names, "u/")


def least_score(number: str) -> int:
    """Return a whole number, which may be negative; raise InputError for anything else."""
    if not _INTEGER.fullmatch(number):
        raise InputError(f"--min-score {number}: not a whole number")
    return int(number)


def _among(name: str, names: Sequence[str]) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name
