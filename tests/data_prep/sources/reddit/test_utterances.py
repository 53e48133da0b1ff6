import codecs
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.plain_text import line_pieces
from deepsiam.data_prep.sources.reddit import utterances
from deepsiam.data_prep.sources.reddit.threads import Utterance
from tests import samples
from tests.data_prep.sources.sound import sound

DATA = samples.DATA / "reddit"
Records = list[Document | Bad | Dropped]

real = samples.needs("reddit")

FILTERS = {"bots": ["abc", "speller"], "min_score": -5}
GERMAN = "Niemand darf willkürlich festgenommen, in Haft gehalten oder des Landes verwiesen werden."

_NOTICES = (
    "[removed]|[deleted]|[ Removed by Reddit ]|[deleted by user]|[unavailable]|\\[removed\\]|*[deleted]*|"
    "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]|"
    "[ Removed by reddit in response to a copyright notice. ]|[ Removed by moderator ]|&#91; Removed by Reddit &#93;|"
    "[redacted]|[ Content blocked ]|[This text was censored]|[removed]\u200b|[removed]\n\n[removed]|"
    "[Comment removed by moderator]|[This post has been removed]|Removed by moderator|"
    "Sorry, this post was removed by Reddit's filters.|[ Removed by Reddit, see [1] ]."
)
NOTICES = _NOTICES.split("|")


def post(**other: Any) -> dict[str, Any]:
    return {"id": "p", "created_utc": 100, "title": "What do you think of it?", "selftext": "", **other}


def comment(name: str, body: str, parent: Any = "t3_p", **other: Any) -> dict[str, Any]:
    base = {"id": name, "link_id": "t3_p", "parent_id": parent, "created_utc": 200, "author": "u", "score": 1}
    return {**base, "body": body, **other}


def lines(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def read(folder: Path, files: Iterable[tuple[str, Iterable[bytes]]], **chosen: Any) -> Records:
    paths = []
    for name, content in files:
        paths.append(folder / name)
        paths[-1].write_bytes(b"".join(line.removesuffix(b"\n") + b"\n" for line in content))
    return list(utterances.REDDIT.documents(paths, **chosen))


def run(folder: Path, *records: dict[str, Any], **chosen: Any) -> Records:
    return read(folder, [("RC_x", lines(*records))], **chosen)


def test_comments_join_their_submission_in_any_order_of_files(tmp_path: Path) -> None:
    submissions = lines(post(selftext="I *do* like it.\n\n&gt; quoted\n\nMuch."))
    bodies = {"a": "So do I, **very** much.", "b": "Me too!", "c": "I do not."}
    comments = lines(*(comment(name, body, "t3_p" if name == "a" else "t1_a") for name, body in bodies.items()))
    asked, answered = "What do you think of it? I do like it. Much.", "So do I, very much."
    expected = [
        Document("reddit/t3_p", (asked, answered, "Me too!"), group="reddit/t3_p"),
        Document("reddit/t3_p/t1_c", (asked, answered, "I do not."), context=2, group="reddit/t3_p"),
    ]
    assert read(tmp_path, [("RS", submissions), ("RC", comments)]) == expected
    assert read(tmp_path, [("RC", comments[::-1]), ("RS", submissions)]) == expected


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        *(({"body": notice}, "deleted") for notice in (" [removed]\n", *NOTICES)),
        ({"author": "AutoModerator"}, "bot"),
        ({"quarantined": True}, "quarantined"),
        ({"subreddit": "Counting"}, "unwanted subreddit"),
        ({"body": ""}, "empty"),
        ({"body": "&gt; only what you said"}, "empty"),
        ({"body": "[look here](http://x.org)"}, "links only"),
        ({"body": "yes!"}, "too short"),
        ({"body": "word " * 410}, "too long"),
        ({"body": "&amp;" * 50_000}, "too long"),
        ({"body": GERMAN}, "other language"),
        ({"author": "HelperBot_"}, "bot"),
        ({"author": "Speller"}, "bot"),
        ({"body": "You mean *there*. ^(I am a bot, and this was done automatically.)"}, "bot"),
        ({"score": "-6"}, "low score"),
    ],
)
def test_a_dropped_utterance_makes_no_pair_with_replies(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    dropped = comment("a", "This is a comment.") | changed
    reply, reply_to_reply = comment("b", "I reply to it.", "t1_a"), comment("c", "And I to you.", "t1_b")
    records = run(tmp_path, post(), dropped, reply, reply_to_reply, without=["counting"], **FILTERS)
    assert records == [
        Dropped(reason),
        Dropped("alone"),
        Document("reddit/t3_p/t1_b", ("I reply to it.", "And I to you."), group="reddit/t3_p"),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"body": "I am not a bot, you know."},
        {"author": "botanist"},
        {"body": "[deleted] it, did you?"},
        {"body": "word " * 20 + "for it is the one that we have."},
        {"score": None},
        {"author": None},
        {"body": "[Removed] the link to [the rules](/r/x), and it was [banned]"},
        {"body": "This post was removed by a mod who had not read it, I think."},
        {"body": "[Here](https://x.org/a) it was removed by Reddit [again]"},
        {"body": "See the answer in [this](http://x.org)."},
        {"body": "Thanks mate"},
        {"quarantined": False, "removed_by_category": None},
    ],
)
def test_utterances_that_are_kept(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert len(run(tmp_path, post(), comment("a", "This is a comment.") | changed)) == 1


@pytest.mark.parametrize(
    ("title", "language", "kept"),
    [("What do you think of all of it?", "en", True), (GERMAN, "en", False), (GERMAN, "any", True)],
)
def test_an_utterance_of_two_words_is_judged_with_its_thread(
    tmp_path: Path, title: str, language: str, kept: bool
) -> None:
    said = comment("a", "lol okay!"), comment("b", "yes i am", "t1_a")
    records = run(tmp_path, post(title=title), *said, language=language)
    reasons = Counter(record.reason for record in records if isinstance(record, Dropped))
    assert reasons == ({} if kept else {"other language": 3})
    assert [d.segments for d in records if isinstance(d, Document)] == [(title, "lol okay!", "yes i am")] * kept


def test_of_chosen_subreddits_only(tmp_path: Path) -> None:
    asked, answer = post(subreddit="Python"), comment("a", "This is a comment.", subreddit="Python")
    assert len(run(tmp_path, asked, answer, subreddits=["aww", "python"])) == 1
    assert run(tmp_path, asked, answer, subreddits=["aww"]) == [Dropped("unwanted subreddit")] * 2


def test_of_a_long_selftext_the_first_paragraphs_are_kept(tmp_path: Path) -> None:
    for selftext, expected in [("so it is " * 200 + "\n\n" + "or not " * 200 + "\n\nc", "is"), ("a" * 100_001, "?")]:
        (document,) = run(tmp_path, post(selftext=selftext), comment("a", "This is a comment."))
        assert isinstance(document, Document)
        assert document.segments[0].endswith(expected)
    for notice in NOTICES:
        for field in ("selftext", "title"):
            removed = run(tmp_path, post(**{field: notice}), comment("a", "This is a comment."))
            assert removed == [Dropped("deleted"), Dropped("alone")]


def test_field_types_of_all_dumps_are_read(tmp_path: Path) -> None:
    records = [
        post(created_utc="100", score="3"),
        comment("abc", "It is a first comment.", created_utc="200", score="x", retrieved_on="300"),
        comment("t1_d", "It is a second one.", int("abc", 36), created_utc=201.5),
        comment("e", "It is a third one.", None, created_utc=202),
        {"id": "f", "link_id": "p", "parent_id": "t1_e", "created_utc": 203, "body": "half \ud83d an emoji"},
    ]
    first, second = run(tmp_path, *records)
    title, thread = "What do you think of it?", "reddit/t3_p"
    assert first == Document(thread, (title, "It is a first comment.", "It is a second one."), group=thread)
    texts = (title, "It is a third one.", "half an emoji")
    assert second == Document(f"{thread}/t1_e", texts, context=1, group=thread)


def test_the_thread_of_a_line_is_known_before_it_is_read(tmp_path: Path) -> None:
    join = utterances.REDDIT.join
    assert join is not None
    path = tmp_path / "RC_x"
    path.write_bytes(b"\n".join([*lines(post(), comment("a", "This is a comment.")), b"{}", b"cut o"]))
    (file,) = utterances.REDDIT.find([path])
    choices = utterances.REDDIT.choices()
    pieces = list(utterances.REDDIT.pieces(file, choices))
    assert [join.belongs(piece) for piece in pieces] == ["t3_p", "t3_p", "line 3", "line 4"]
    assert [item[0] for piece in pieces[:2] for item in utterances.REDDIT.read(file, piece, choices)] == [
        "t3_p",
        "t3_p",
    ]


keys = st.sampled_from(
    ["id", "link_id", "parent_id", "body", "title", "selftext", "created_utc", "retrieved_on", "score", "author"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    | st.sampled_from(["t3_a", "t1_b", "b", "a", "It is a comment.", "[deleted]", 2**70, -1, "1e9", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(
    st.lists(
        st.binary(max_size=40)
        | st.dictionaries(keys, values).map(lambda record: json.dumps(record).encode())
        | st.dictionaries(keys, values).map(lambda r: json.dumps(comment("b", "It is a comment.") | r).encode()),
        max_size=8,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_becomes_exactly_one_record(tmp_path: Path, content: list[bytes]) -> None:
    (tmp_path / "x").write_bytes(b"{}\n" + b"\n".join(content))
    records = list(utterances.REDDIT.documents([tmp_path / "x"]))
    texts = [line.removeprefix(codecs.BOM_UTF8).strip() for item in content for line in item.split(b"\n")]
    account_for(records, 1 + sum(map(bool, texts)))


def account_for(records: Records, lines: int) -> Counter[str]:
    """Check that every line is one record; count the reasons of those dropped."""
    new = sum(len(d.segments) - d.context for d in records if isinstance(d, Document))
    left = Counter(d.reason for d in records if isinstance(d, Dropped))
    bad = sum(isinstance(d, Bad) for d in records)
    assert new + left.total() + bad == lines
    documents = [d for d in sound(records) if isinstance(d, Document)]
    assert len(documents) == len({d.id for d in documents})
    assert all(0 <= d.context < len(d.segments) >= 2 for d in documents)
    return left


def edges(paths: list[Path]) -> tuple[int, Counter[tuple[str, str]]]:
    """Return the number of lines of a month, and its pairs, found with a dictionary of all utterances."""
    newest: dict[str, Utterance] = {}
    lines = [piece.content for path in paths for piece in line_pieces(path, utterances.LONGEST_LINE)]
    for line in lines:
        with suppress(ValueError):
            utterance = utterances._utterance(line, utterances.REDDIT.choices(language="any"))
            before = newest.setdefault(utterance.id, utterance)
            if (utterance.retrieved, utterance.score) > (before.retrieved, before.score):
                newest[utterance.id] = utterance
    replies = [(newest[reply.parent], reply) for reply in newest.values() if reply.parent in newest]
    return len(lines), Counter(
        (parent.text, reply.text)
        for parent, reply in replies
        if parent.text and reply.text and parent is not reply and parent.thread == reply.thread
    )


def pairs(records: Records) -> Counter[tuple[str, str]]:
    return Counter(
        (d.segments[i - 1], d.segments[i])
        for d in records
        if isinstance(d, Document)
        for i in range(max(1, d.context), len(d.segments))
    )


@real
@pytest.mark.slow
def test_a_real_month() -> None:
    pytest.importorskip("zstandard", reason="needs the packages of the extra `dumps`")
    paths = [DATA / "RC_sample.zst", DATA / "RS_sample.zst"]
    count, expected = edges(paths)
    records = list(utterances.REDDIT.documents(paths, language="any"))
    left = account_for(records, count)
    assert [(Path(bad.file).name, bad.where, bad.reason.split(" (")[0]) for bad in records if isinstance(bad, Bad)] == [
        ("RC_sample.zst", "line 6,255", "id is missing or not of Reddit's kind"),  # "MISMATCH", in a recorded answer
        ("RC_sample.zst", "line 8,949", "not JSON"),
        ("RS_sample.zst", "line 4,722", "not JSON"),
    ]
    assert (left["duplicate"], left["older version"], left["bot"]) == (144, 43, 114)
    assert left["deleted"] == 704 + 812  # comments, submissions
    circle = expected - pairs(records)
    assert list(circle.values()) == [1]  # the injected circle
    assert pairs(records) == expected - circle
    english = pairs(list(utterances.REDDIT.documents(paths)))
    assert english <= pairs(records)
    assert (english.total(), pairs(records).total()) == (3232, 3300)
