from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.reddit import threads
from deepsiam.data_prep.sources.reddit.threads import CONTEXT, UTTERANCES, Utterance


def comment(name: int, parent: int, text: str = "", dropped: str = "", retrieved: int = 0, score: int = 0) -> Utterance:
    """Return a reply to another comment or to the submission (0); by default its text is its number."""
    id, replied = (f"t1_{n}" if n else "t3_a" for n in (name, parent))
    said = "" if dropped else text or str(name)
    return Utterance("t3_a", 100 + name, id, replied if name else "", retrieved, score, said, dropped)


SUBMISSION = comment(0, 0)


def cut(thread: list[Utterance]) -> Iterator[Document | Dropped]:
    return threads.cut(thread, wanted=lambda text: "yes" in text.split("\n"))


def documents(thread: list[Utterance]) -> dict[str, tuple[tuple[str, ...], int]]:
    found = {d.id: (d.segments, d.context) for d in cut(thread) if isinstance(d, Document)}
    assert len(found) == sum(isinstance(d, Document) for d in cut(thread))
    return found


def reasons(thread: list[Utterance]) -> Counter[str]:
    return Counter(d.reason for d in cut(thread) if isinstance(d, Dropped))


def pairs(thread: list[Utterance]) -> Counter[tuple[str, str]]:
    return Counter(
        segments[i - 1 : i + 1]
        for segments, context in documents(thread).values()
        for i in range(max(1, context), len(segments))
    )


def test_the_first_reply_goes_on_and_the_others_open_documents() -> None:
    thread = [SUBMISSION, comment(1, 0), comment(2, 1), comment(3, 0), comment(4, 1), comment(5, 4)]
    assert documents(thread) == {
        "reddit/t3_a": (("0", "1", "2"), 0),
        "reddit/t3_a/t1_3": (("0", "3"), 1),
        "reddit/t3_a/t1_4": (("0", "1", "4", "5"), 2),
    }
    assert reasons(thread) == {}


def test_replies_to_what_was_dropped_or_is_missing_have_no_context() -> None:
    thread = [SUBMISSION, comment(1, 0, dropped="bot"), comment(2, 1), comment(3, 2), comment(4, 99), comment(5, 0)]
    assert documents(thread) == {"reddit/t3_a": (("0", "5"), 0), "reddit/t3_a/t1_2": (("2", "3"), 0)}
    assert reasons(thread) == {"bot": 1, "alone": 1}


def test_doubtful_utterances_are_dropped_where_the_thread_is_not_wanted() -> None:
    doubtful = [utterance._replace(doubtful=True) for utterance in (comment(2, 1), comment(4, 3, dropped="bot"))]
    thread = [SUBMISSION, comment(1, 0, "no"), *doubtful, comment(3, 2)]
    assert documents(thread) == {"reddit/t3_a": (("0", "no"), 0)}
    assert reasons(thread) == {"other language": 1, "alone": 1, "bot": 1}
    thread[1] = comment(1, 0, "yes")
    assert documents(thread) == {"reddit/t3_a": (("0", "yes", "2", "3"), 0)}
    thread[1] = comment(1, 0, "yes", dropped="too long")
    assert reasons(thread) == {"too long": 1, "other language": 1, "alone": 2, "bot": 1}


def test_of_each_utterance_the_newest_version_counts() -> None:
    thread = [
        SUBMISSION,
        *[comment(1, 0, "old", retrieved=5, score=9)] * 2,
        comment(1, 0, "new", retrieved=6, score=3),
        comment(1, 0, "newest", retrieved=6, score=4),
        comment(2, 0),
        comment(2, 0, dropped="deleted", retrieved=1),
    ]
    assert documents(thread) == {"reddit/t3_a": (("0", "newest"), 0)}
    assert reasons(thread) == {"duplicate": 1, "older version": 3, "deleted": 1}
    assert documents(thread[::-1]) == documents(thread)


def test_circles_are_cut_before_their_first_utterance() -> None:
    thread = [comment(9, 4), comment(1, 5), comment(5, 3), comment(3, 4), comment(4, 3), comment(7, 7), comment(8, 7)]
    assert documents(thread) == {
        "reddit/t3_a/t1_3": (("3", "4", "9"), 0),
        "reddit/t3_a/t1_5": (("3", "5", "1"), 1),
        "reddit/t3_a/t1_7": (("7", "8"), 0),
    }


def test_context_is_bounded_but_holds_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, 9)], comment(20, 7)]
    assert documents(chain)["reddit/t3_a/t1_20"] == (("4", "5", "6", "7", "20"), CONTEXT)
    monkeypatch.setattr(threads, "CONTEXT_CHARACTERS", 2)
    assert documents(chain)["reddit/t3_a/t1_20"] == (("6", "7", "20"), 2)
    monkeypatch.setattr(threads, "CONTEXT_CHARACTERS", 0)
    assert documents(chain)["reddit/t3_a/t1_20"] == (("7", "20"), 1)


def test_a_deep_thread_is_cut_into_full_documents() -> None:
    depth = 10 * UTTERANCES
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, depth)]]
    found = documents(chain)
    assert len(found) == 10
    assert {len(segments) - context for segments, context in found.values()} == {UTTERANCES}
    assert sum(len(segments) for segments, _ in found.values()) == depth + 9 * CONTEXT
    assert pairs(chain) == {(str(n - 1), str(n)): 1 for n in range(1, depth)}


def test_neither_deep_nor_wide_threads_take_long() -> None:
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, 10_000)]]
    star = [SUBMISSION, *[comment(n, 0) for n in range(1, 10_000)]]
    circle = [comment(n, n % 10_000 + 1) for n in range(1, 10_001)]
    assert [sum(pairs(thread).values()) for thread in (chain, star, circle)] == [9_999] * 3


@st.composite
def forests(draw: st.DrawFn) -> list[Utterance]:
    """Utterances whose parents are anything: others before or after them, themselves, missing, or dropped."""
    count = draw(st.integers(1, 40))
    window = draw(st.sampled_from([2, 50]))  # deep or wide
    thread = []
    for n in range(count):
        parent = draw(st.one_of(st.integers(max(0, n - window), max(0, n - 1)), st.integers(0, count + 1)))
        thread.append(comment(n, parent, dropped=draw(st.sampled_from(["", "", "", "bot"]))))
    return thread


@given(forests(), st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 6))
def test_every_pair_occurs_exactly_once(thread: list[Utterance], random: Random, context: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "CONTEXT", context)
        patch.setattr(threads, "UTTERANCES", most)
        found, left = documents(thread), reasons(thread)
        made = pairs(thread)
        shuffled = list(thread)
        random.shuffle(shuffled)
        assert list(cut(shuffled)) == list(cut(thread))
    kept = {u.id: u for u in thread if not u.dropped}
    edges = {(kept[u.parent].text, u.text) for u in kept.values() if u.parent in kept and u.parent != u.id}
    assert set(made.values()) <= {1}
    assert set(made) <= edges
    assert len(edges) - len(made) == circles(kept)
    new = [text for segments, context in found.values() for text in segments[context:]]
    assert len(new) == len(set(new)) == len(kept) - left["alone"]
    assert left["bot"] == len(thread) - len(kept)
    parents = {child: parent for parent, child in made}
    for segments, held in found.values():
        assert held <= context
        assert len(segments) <= held + most
        assert all(parents[child] == parent for parent, child in zip(segments, segments[1:], strict=False))


def circles(kept: dict[str, Utterance]) -> int:
    """Count circles of two or more: follow the parents of each utterance for as many steps as there are utterances."""
    ends = set()
    for name in kept:
        for _ in kept:
            name = kept[name].parent if name in kept else ""
        members = set()
        while name in kept and name not in members:
            members.add(name)
            name = kept[name].parent
        ends.add(frozenset(members))
    return sum(len(members) > 1 for members in ends)
