"""One thread, a tree of utterances, cut into documents so that every pair of utterance and reply is stored once.

A document is a piece of a path through the tree. The first reply to an utterance (by time, then id) continues its
document; every other reply begins a new document, and so does a reply to a document that is full. A new document
begins with the utterances before it on its path, the nearest CONTEXT or fewer: at least the one replied to, and at
most CONTEXT_CHARACTERS unless that one alone has more. They are its first `context` segments. The thread is the group
of all its documents. So

- each utterance is a segment beyond the context of exactly one document, whose id names the first of them;
- segment i of a document is a reply to segment i - 1, and each pair of the thread is such a pair exactly once with
  i >= context and i >= 1; the segments before i are the context of that reply;
- an utterance without a parent (the submission, mostly) has `context` 0 and nothing before it;
- no document has more than CONTEXT + UTTERANCES segments, and what is stored is at most (1 + CONTEXT) times the
  utterances, however deep the thread.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from typing import NamedTuple

from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.pairing import is_short

CONTEXT = 4  # utterances
CONTEXT_CHARACTERS = 1500  # 360 tokens or so, as much as a Poly-encoder reads of a context
UTTERANCES = 64  # of a document beyond its context
OTHER_LANGUAGE = "other language"  # why an utterance is dropped


class Utterance(NamedTuple):
    """A comment or a submission; ids and parents are Reddit's full names (`t1_` a comment, `t3_` a submission)."""

    thread: str  # the submission's
    created: int
    id: str
    parent: str  # "" for a submission
    retrieved: int  # the newest version of an utterance is the one with the latest `retrieved`, then highest `score`
    score: int
    text: str  # one line; "" if the utterance is dropped for any reason but its language
    dropped: str  # the reason; "" where it is kept
    doubtful: bool = False  # too short to tell its language: its thread decides
    author: str = ""  # for pairs, if it is known
    title: int = 0  # for pairs: how many of the text's first characters are the title


def cut(thread: list[Utterance], is_wanted: Callable[[str], bool]) -> Iterator[Document | Dropped]:
    """Yield the documents of a thread and its dropped utterances; the order of the utterances does not matter.

    Replies to a dropped or missing utterance have no parent: they begin documents. An utterance without parent and
    replies is dropped as `alone`. A circle of replies is cut before its first utterance.
    """
    utterances = yield from select(thread, is_wanted)
    parents = {u.id: u.parent for u in utterances.values() if u.parent in utterances}
    for name in _circles(utterances, parents):
        del parents[name]
    replies: dict[str, list[str]] = {}
    for name, parent in parents.items():
        replies.setdefault(parent, []).append(name)
    for name in utterances:
        if name in replies and name not in parents:
            yield from _documents(name, utterances, parents, replies)
        elif name not in parents:
            yield Dropped("alone")


def select(thread: list[Utterance], is_wanted: Callable[[str], bool]) -> Generator[Dropped, None, dict[str, Utterance]]:
    """Yield the dropped utterances of a thread; return the others by their ids, by time, then id.

    Doubtful utterances are kept if `is_wanted` accepts all texts of the thread, including those in another language. If
    several utterances have the same id and content, all but one are dropped as `duplicate`; if several have the same
    id, all but the newest as `older version`.
    """
    utterances: dict[str, Utterance] = {}
    texts = []
    for utterance in _newest(thread):
        if isinstance(utterance, Dropped):
            yield utterance
            continue
        texts.append(utterance.text)
        if utterance.dropped:
            yield Dropped(utterance.dropped)
        else:
            utterances[utterance.id] = utterance
    doubtful = [name for name, utterance in utterances.items() if utterance.doubtful]
    if doubtful and not is_wanted("\n".join(filter(None, texts))):
        for name in doubtful:
            del utterances[name]
            yield Dropped(OTHER_LANGUAGE)
    return utterances


def _newest(thread: list[Utterance]) -> Iterator[Utterance | Dropped]:
    """Yield the newest version of each utterance, by time, then id, and the other versions as Dropped."""
    newest: dict[str, Utterance] = {}
    for utterance, copies in groupby(sorted(thread, key=lambda u: (u.retrieved, u.score, u))):
        yield from [Dropped("duplicate")] * (len(list(copies)) - 1)
        if utterance.id in newest:
            yield Dropped("older version")
        newest[utterance.id] = utterance
    yield from sorted(newest.values(), key=lambda u: (u.created, u.id))


def _circles(utterances: dict[str, Utterance], parents: dict[str, str]) -> list[str]:
    """Return the first utterance, by time, then id, of each circle of replies."""
    firsts = []
    walks: dict[str, str] = {}  # utterance -> the start of the walk towards a root that first passed it
    for start in utterances:
        name = start
        while name in parents and name not in walks:
            walks[name] = start
            name = parents[name]
        if walks.get(name) == start:
            circle = [name]
            while parents[circle[-1]] != name:
                circle.append(parents[circle[-1]])
            firsts.append(min(circle, key=lambda name: (utterances[name].created, name)))
    return firsts


def _documents(
    root: str, utterances: dict[str, Utterance], parents: dict[str, str], replies: dict[str, list[str]]
) -> Iterator[Document]:
    """Yield the documents of the tree under `root`, which has replies."""
    openings = [root]
    while openings:
        opening = name = openings.pop()
        segments = _context(opening, utterances, parents)
        context = len(segments)
        segments.append(utterances[opening].text)
        while name in replies:
            follower, *siblings = replies[name]
            openings += siblings[::-1]
            if len(segments) == context + UTTERANCES:
                openings.append(follower)
                break
            segments.append(utterances[follower].text)
            name = follower
        thread = utterances[opening].thread
        path = thread if opening == thread else f"{thread}/{opening}"
        yield Document(f"reddit/{path}", tuple(segments), context=context, group=f"reddit/{thread}")


def _context(name: str, utterances: dict[str, Utterance], parents: dict[str, str]) -> list[str]:
    """Return the utterances before this one, oldest first, as many as the bounds allow."""
    texts: list[str] = []
    while name in parents and len(texts) < CONTEXT:
        name = parents[name]
        if texts and sum(map(len, texts)) + len(utterances[name].text) > CONTEXT_CHARACTERS:
            break
        texts.append(utterances[name].text)
    return texts[::-1]


BEST_COMMENTS = 3  # comments of a post


def best_pairs(utterances: dict[str, Utterance]) -> Iterator[Document | Dropped]:
    """Yield the pairs of the kept utterances of a thread, which is their group.

    A comment is an answer to the post itself by someone else; the best are those with the highest scores, of equal ones
    the earliest. Dropped: all other utterances, and pairs whose document is too short.
    """
    post = next((utterance for utterance in utterances.values() if utterance.id == utterance.thread), None)
    answers = [
        utterance
        for utterance in utterances.values()
        if post and utterance.parent == post.id and (utterance.author != post.author or not post.author)
    ]
    comments = sorted(answers, key=lambda answer: (-answer.score, answer.created, answer.id))[:BEST_COMMENTS]
    yield from [Dropped("not among the best comments")] * (len(utterances) - len(comments) - bool(post))
    if post and (body := post.text[post.title :].strip()):
        yield _pair(post, "body", post.text[: post.title], body)
    elif post and not comments:
        yield Dropped("alone")
    for answer in comments:
        yield _pair(answer, answer.id, post.text if post else "", answer.text)


def _pair(of: Utterance, name: str, query: str, document: str) -> Document | Dropped:
    if is_short(document):
        return Dropped("no text or short")
    return Document(f"reddit/{of.thread}/{name}", (query, document), group=f"reddit/{of.thread}")
