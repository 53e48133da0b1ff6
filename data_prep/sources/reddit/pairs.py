"""Pairs of a thread: a post's title with its text, and the post with its best comments."""

from collections.abc import Iterator

from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.pairing import is_short
from deepsiam.data_prep.sources.reddit.threads import Utterance

BEST = 3  # comments of a post


def pairs(kept: dict[str, Utterance]) -> Iterator[Document | Dropped]:
    """Yield the pairs of the kept utterances of a thread, which is their group.

    A comment is an answer to the post itself by someone else; the best are those with the highest scores, of equal ones
    the earliest. Dropped: all other utterances, and pairs whose document is too short.
    """
    post = next((utterance for utterance in kept.values() if utterance.id == utterance.thread), None)
    answers = [
        utterance
        for utterance in kept.values()
        if post and utterance.parent == post.id and (utterance.author != post.author or not post.author)
    ]
    best = sorted(answers, key=lambda answer: (-answer.score, answer.created, answer.id))[:BEST]
    yield from [Dropped("not among the best comments")] * (len(kept) - len(best) - bool(post))
    if post and (body := post.text[post.title :].strip()):
        yield _pair(post, "body", post.text[: post.title], body)
    elif post and not best:
        yield Dropped("alone")
    for answer in best:
        yield _pair(answer, answer.id, post.text if post else "", answer.text)


def _pair(of: Utterance, name: str, query: str, document: str) -> Document | Dropped:
    if is_short(document):
        return Dropped("no text or short")
    return Document(f"reddit/{of.thread}/{name}", (query, document), group=f"reddit/{of.thread}")
