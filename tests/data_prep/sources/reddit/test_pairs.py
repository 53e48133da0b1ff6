"""The pairs of a thread: the title of a post with its text, the post with its best comments."""

import json
from pathlib import Path
from typing import Any

from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.reddit.utterances import REDDIT

TITLE, TEXT = "Why does the fox jump over the dog?", "I have seen it do so in the garden, and nobody could tell me."
POST = {"id": "p", "created_utc": 1, "title": TITLE, "selftext": TEXT, "author": "asker"}


def answer(number: int, score: int, author: str = "other", parent: str = "t3_p", **more: Any) -> dict[str, Any]:
    body = f"The answer with number {number} is that it can, and that it likes to."
    base = {"id": f"c{number}", "link_id": "t3_p", "parent_id": parent, "author": author}
    return {**base, "created_utc": 2 + number, "body": body, "score": score, **more}


def read(folder: Path, *records: dict[str, Any]) -> list[Document | Dropped]:
    path = folder / "RC_2020-01"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = list(REDDIT.documents([path], pairs=True))
    assert all(isinstance(item, Document | Dropped) for item in found)
    return [item for item in found if isinstance(item, Document | Dropped)]


def test_the_best_comments_to_the_post_itself_are_its_documents(tmp_path: Path) -> None:
    comments = [answer(1, 2), answer(2, 9), answer(3, 2), answer(4, 99, parent="t1_c1"), answer(5, 5), answer(6, 2)]
    records = read(tmp_path, *comments, POST)
    pairs = [item for item in records if isinstance(item, Document)]
    assert [pair.id for pair in pairs] == [f"reddit/t3_p/{name}" for name in ("body", "t1_c2", "t1_c5", "t1_c1")]
    assert {pair.group for pair in pairs} == {"reddit/t3_p"}
    assert pairs[0].segments == (TITLE, TEXT)
    assert pairs[1].segments == (f"{TITLE} {TEXT}", comments[1]["body"])
    assert [item for item in records if isinstance(item, Dropped)] == [Dropped("not among the best comments")] * 3


def test_the_asker_bots_and_deleted_comments_answer_nothing(tmp_path: Path) -> None:
    comments = [answer(1, 9, author="asker"), answer(2, 9, author="AutoModerator"), answer(3, 9, body="[deleted]")]
    records = read(tmp_path, *comments, answer(4, 1, body="Because it does."), {**POST, "selftext": ""})
    reasons = sorted(item.reason for item in records if isinstance(item, Dropped))
    assert reasons == ["bot", "deleted", "no text or short", "not among the best comments"]
    assert len(records) == 4


def test_whoever_is_not_known_is_someone_else(tmp_path: Path) -> None:
    records = read(tmp_path, answer(1, 9, author="[deleted]"), {**POST, "author": "[deleted]", "selftext": ""})
    assert [type(item) for item in records] == [Document]


def test_a_post_without_text_and_comments_is_left_out_and_so_are_comments_without_their_post(tmp_path: Path) -> None:
    assert read(tmp_path, {**POST, "selftext": ""}) == [Dropped("alone")]
    assert read(tmp_path, answer(1, 9), answer(2, 9)) == [Dropped("not among the best comments")] * 2


def test_an_author_that_utf_8_cannot_hold_makes_the_line_bad(tmp_path: Path) -> None:
    path = tmp_path / "RC_2020-01"
    path.write_text(json.dumps(answer(1, 9, author="\ud800")))
    (bad,) = REDDIT.documents([path], pairs=True)
    assert isinstance(bad, Bad)
    assert bad.reason == "half of a surrogate pair, which is not a character"
