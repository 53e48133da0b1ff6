"""Threads are cut into documents, or made pairs; Markdown becomes the author's own words."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.reddit import threads
from deepsiam.data_prep.sources.reddit.markdown import is_links_only, paragraphs
from deepsiam.data_prep.sources.reddit.threads import CONTEXT, UTTERANCES, Utterance
from deepsiam.data_prep.sources.reddit.utterances import REDDIT


def comment(name: int, parent: int, text: str = "", dropped: str = "", retrieved: int = 0, score: int = 0) -> Utterance:
    """Return a reply to another comment or to the submission (0); by default its text is its number."""
    id, replied = (f"t1_{n}" if n else "t3_a" for n in (name, parent))
    said = "" if dropped else text or str(name)
    return Utterance("t3_a", 100 + name, id, replied if name else "", retrieved, score, said, dropped)


SUBMISSION = comment(0, 0)
DOUBTFUL = [utterance._replace(doubtful=True) for utterance in (comment(2, 1), comment(4, 3, dropped="bot"))]


def cut(thread: list[Utterance]) -> Iterator[Document | Dropped]:
    return threads.cut(thread, is_wanted=lambda text: "yes" in text.split("\n"))


def documents(thread: list[Utterance]) -> dict[str, tuple[tuple[str, ...], int]]:
    found = {d.id: (d.segments, d.context) for d in cut(thread) if isinstance(d, Document)}
    assert len(found) == sum(isinstance(d, Document) for d in cut(thread))
    return found


def pairs(thread: list[Utterance]) -> Counter[tuple[str, str]]:
    return Counter(
        segments[i - 1 : i + 1]
        for segments, context in documents(thread).values()
        for i in range(max(1, context), len(segments))
    )


THREADS: dict[str, tuple[list[Utterance], dict[str, tuple[tuple[str, ...], int]], dict[str, int]]] = {
    "the first reply goes on, the others open documents": (
        [SUBMISSION, comment(1, 0), comment(2, 1), comment(3, 0), comment(4, 1), comment(5, 4)],
        {"": (("0", "1", "2"), 0), "/t1_3": (("0", "3"), 1), "/t1_4": (("0", "1", "4", "5"), 2)},
        {},
    ),
    "replies to what was dropped or is missing have no context": (
        [SUBMISSION, comment(1, 0, dropped="bot"), comment(2, 1), comment(3, 2), comment(4, 99), comment(5, 0)],
        {"": (("0", "5"), 0), "/t1_2": (("2", "3"), 0)},
        {"bot": 1, "alone": 1},
    ),
    "circles are cut before their first utterance": (
        [comment(9, 4), comment(1, 5), comment(5, 3), comment(3, 4), comment(4, 3), comment(7, 7), comment(8, 7)],
        {"/t1_3": (("3", "4", "9"), 0), "/t1_5": (("3", "5", "1"), 1), "/t1_7": (("7", "8"), 0)},
        {},
    ),
    "doubtful ones are dropped where the thread is not wanted": (
        [SUBMISSION, comment(1, 0, "no"), *DOUBTFUL, comment(3, 2)],
        {"": (("0", "no"), 0)},
        {"other language": 1, "alone": 1, "bot": 1},
    ),
    "and kept where it is": (
        [SUBMISSION, comment(1, 0, "yes"), *DOUBTFUL, comment(3, 2)],
        {"": (("0", "yes", "2", "3"), 0)},
        {"bot": 1},
    ),
    "texts that are dropped do not count": (
        [SUBMISSION, comment(1, 0, "yes", dropped="too long"), *DOUBTFUL, comment(3, 2)],
        {},
        {"too long": 1, "other language": 1, "alone": 2, "bot": 1},
    ),
    "of each utterance the newest version counts": (
        [
            SUBMISSION,
            *[comment(1, 0, "old", retrieved=5, score=9)] * 2,
            comment(1, 0, "new", retrieved=6, score=3),
            comment(1, 0, "newest", retrieved=6, score=4),
            comment(2, 0),
            comment(2, 0, dropped="deleted", retrieved=1),
        ],
        {"": (("0", "newest"), 0)},
        {"duplicate": 1, "older version": 3, "deleted": 1},
    ),
}


@pytest.mark.parametrize("name", THREADS)
def test_threads_are_cut(name: str) -> None:
    thread, expected, left = THREADS[name]
    assert documents(thread) == {f"reddit/t3_a{path}": found for path, found in expected.items()}
    assert documents(thread[::-1]) == documents(thread)
    assert Counter(item.reason for item in cut(thread) if isinstance(item, Dropped)) == left


@pytest.mark.parametrize(("characters", "first"), [(threads.CONTEXT_CHARACTERS, 8 - CONTEXT), (2, 6), (0, 7)])
def test_context_is_bounded_but_holds_the_parent(monkeypatch: pytest.MonkeyPatch, characters: int, first: int) -> None:
    monkeypatch.setattr(threads, "CONTEXT_CHARACTERS", characters)
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, 9)], comment(20, 7)]
    context = tuple(map(str, range(first, 8)))
    assert documents(chain)["reddit/t3_a/t1_20"] == ((*context, "20"), len(context))


def test_a_deep_thread_is_cut_into_full_documents() -> None:
    depth = 10 * UTTERANCES
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, depth)]]
    found = documents(chain)
    assert len(found) == 10
    assert {len(segments) - context for segments, context in found.values()} == {UTTERANCES}
    assert sum(len(segments) for segments, _ in found.values()) == depth + 9 * CONTEXT
    assert pairs(chain) == {(str(n - 1), str(n)): 1 for n in range(1, depth)}


def test_neither_deep_nor_wide_threads_take_long() -> None:
    chain = [SUBMISSION, *[comment(n, n - 1) for n in range(1, 4000)]]
    star = [SUBMISSION, *[comment(n, 0) for n in range(1, 4000)]]
    circle = [comment(n, n % 4000 + 1) for n in range(1, 4001)]
    assert [sum(pairs(thread).values()) for thread in (chain, star, circle)] == [3999] * 3


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
        found, left = documents(thread), Counter(item.reason for item in cut(thread) if isinstance(item, Dropped))
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


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("Two lines\r\nof one paragraph.\n\nAnd another.", ["Two lines of one paragraph.", "And another."]),
        ("&gt; what you said\nand went on\n\nI disagree.", ["I disagree."]),
        ("before\n> quoted\n\nafter", ["before", "after"]),
        ("&gt;!He dies!&lt; in the end", ["He dies in the end"]),
        ("Try:\n\n    import this\n    more()\n\nIt works.", ["Try:", "It works."]),
        ("Try:\n```python\nimport this\n\nmore()\n```\nIt works.", ["Try:", "It works."]),
        ("Run `make test` first, or ``make`` alone", ["Run make test first, or make alone"]),
        ("# Heading\n## Another\ntext #tag", ["Heading", "Another text #tag"]),
        ("* one\n* two\n    goes on\n\n    still two\n1. three", ["one", "two goes on", "still two", "three"]),
        ("a table:\n\nname | age\n---|---:\nBob | 7\n\nafter", ["a table:", "after"]),
        ("cmd | grep x | less", ["cmd | grep x | less"]),
        ("**bold** and *so* ***on*** and __that__ _too_ ~~gone~~", ["bold and so on and that too gone"]),
        ("2*3*4 = 24, snake_case_name, sh\\*tty, a * b * c", ["2*3*4 = 24, snake_case_name, sh*tty, a * b * c"]),
        ("^^tiny ^(small print) but x^2", ["tiny small print but x^2"]),
        ('see [the docs](http://x.org/a_(b)) and [these](/r/python "title").', ["see the docs and these."]),
        ("see [this][1] of it\n\n[1]: http://x.org", ["see this of it"]),
        ("Tom &amp;amp; Jerry &amp; co &lt;3&amp;nbsp;x &amp;#x200B;", ["Tom & Jerry & co <3 x"]),
        ("&amp;gt; typed as an entity", ["> typed as an entity"]),
        ("half \ud83d an emoji\x00", ["half an emoji"]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_paragraphs(markdown: str, plain: list[str]) -> None:
    assert paragraphs(markdown) == plain


def test_links_only() -> None:
    for links in ("http://x.org", "[a label](http://x.org) - https://y.org!", "[1]: http://x.org"):
        assert is_links_only(links)
    assert not any(map(is_links_only, ("see http://x.org", ":-)", "")))


@given(st.text(st.sampled_from('ab &;<>!*_~^`[]()#-|=:./\\\n"1\ud83d') | st.characters(), max_size=200))
def test_any_text_becomes_lines_of_text(markdown: str) -> None:
    for paragraph in paragraphs(markdown):
        assert paragraph == " ".join(paragraph.split()) != ""
        assert paragraph.encode()
    assert is_links_only(markdown) in (True, False)


TITLE, TEXT = "Why does the fox jump over the dog?", "I have seen it do so in the garden, and nobody could tell me."
POST = {"id": "p", "created_utc": 1, "title": TITLE, "selftext": TEXT, "author": "asker"}


def answer(number: int, score: int, author: str = "other", parent: str = "t3_p", **more: Any) -> dict[str, Any]:
    body = f"The answer with number {number} is that it can, and that it likes to."
    base = {"id": f"c{number}", "link_id": "t3_p", "parent_id": parent, "author": author}
    return {**base, "created_utc": 2 + number, "body": body, "score": score, **more}


def read(folder: Path, *records: dict[str, Any]) -> list[Any]:
    path = folder / "RC_2020-01"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(REDDIT.documents([path], pairs=True))


def test_the_best_comments_to_the_post_itself_are_its_documents(tmp_path: Path) -> None:
    comments = [answer(1, 2), answer(2, 9), answer(3, 2), answer(4, 99, parent="t1_c1"), answer(5, 5), answer(6, 2)]
    pairs = {"body": (TITLE, TEXT), **{f"t1_c{n}": (f"{TITLE} {TEXT}", comments[n - 1]["body"]) for n in (2, 5, 1)}}
    dropped = [Dropped("not among the best comments")] * 3
    expected = [Document(f"reddit/t3_p/{name}", texts, group="reddit/t3_p") for name, texts in pairs.items()]
    assert read(tmp_path, *comments, POST) == dropped + expected


def test_the_asker_bots_and_deleted_comments_answer_nothing(tmp_path: Path) -> None:
    comments = [answer(1, 9, author="asker"), answer(2, 9, author="AutoModerator"), answer(3, 9, body="[deleted]")]
    records = read(tmp_path, *comments, answer(4, 1, body="Because it does."), {**POST, "selftext": ""})
    reasons = ["bot", "deleted", "no text or short", "not among the best comments"]
    assert sorted(item.reason for item in records) == reasons
    # whoever is not known is someone else
    (pair,) = read(tmp_path, answer(1, 9, author="[deleted]"), {**POST, "author": "[deleted]", "selftext": ""})
    assert isinstance(pair, Document)


def test_a_post_without_text_and_comments_is_left_out_and_so_are_comments_without_their_post(tmp_path: Path) -> None:
    assert read(tmp_path, {**POST, "selftext": ""}) == [Dropped("alone")]
    assert read(tmp_path, answer(1, 9), answer(2, 9)) == [Dropped("not among the best comments")] * 2


def test_an_author_that_utf_8_cannot_hold_makes_the_line_bad(tmp_path: Path) -> None:
    (bad,) = read(tmp_path, answer(1, 9, author="\ud800"))
    assert bad.reason == "half of a surrogate pair, which is not a character"
