"""LRL: a small server writes orders of passages; what is asked, how answers are read, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import evaluate
from deepsiam.trainer.ranking.rankers.generated import GeneratedLists, complete, named_in, prompt
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from tests.trainer.ranking.served import says, server


def passages_of(body: dict[str, Any]) -> list[str]:
    lines = re.findall(r"^PASSAGE\d+ = (.*)$", body["messages"][0]["content"], re.MULTILINE)
    return [json.loads(line) for line in lines]


def by_length(body: dict[str, Any]) -> tuple[int, Any]:
    """The longest passages first, with a repeat, a stranger and a missing one."""
    texts = passages_of(body)
    order = sorted(range(len(texts)), key=lambda i: (-len(texts[i]), texts[i]))
    named = [f"PASSAGE{i + 1}" for i in order[:-1]]
    return 200, says(f"{', '.join([named[0], 'PASSAGE99', *named])}]")


def lrl(collection: Collection, url: str, **options: str) -> GeneratedLists:
    ranker = open_ranker("lrl", collection)
    assert isinstance(ranker, GeneratedLists)
    return ranker.with_options({"url": url, "model": "org/tiny", **options})


def test_windows_are_ranked_by_what_the_server_writes(opened: Collection, capsys: pytest.CaptureFixture[str]) -> None:
    lists = [(0, [*range(30)]), (3, [5, 2])]
    with server(by_length) as (url, asked):
        scores = lrl(opened, url, window="8", stride="4").scores(lists, "re-rank")
    texts = [opened.corpus.text(i) for i in range(30)]
    best = sorted(range(30), key=lambda i: (-len(texts[i]), texts[i]))
    assert np.argsort(-scores[0])[:4].tolist() == best[:4]
    assert sorted(scores[0].tolist()) == [*range(1, 31)]
    assert len(asked) == 1 + -(-22 // 4) + 1
    assert f"re-rank: {len(asked)} requests, {len(asked) / 2:.0f} a query\n" in capsys.readouterr().err
    first = asked[0]
    assert (first["path"], first["model"], first["temperature"]) == ("/v1/chat/completions", "org/tiny", 0)
    assert "Authorization" not in first["headers"]
    questions = [re.findall("^QUESTION = (.*)$", body["messages"][0]["content"], re.MULTILINE) for body in asked]
    assert {json.loads(question) for (question,) in questions} == {opened.queries.text(0), opened.queries.text(3)}


def test_long_passages_are_shortened_until_the_server_takes_them(opened: Collection) -> None:
    def few(body: dict[str, Any]) -> tuple[int, Any]:
        if max(len(text.split()) for text in passages_of(body)) > 4:
            return 400, {"error": {"message": "This model's maximum context length is 40 tokens."}}
        return 200, says("PASSAGE2, PASSAGE1]")

    with server(few) as (url, asked):
        (scores,) = lrl(opened, url).scores([(0, [0, 1])])
    assert scores.tolist() == [1, 2]
    longest = [max(len(text.split()) for text in passages_of(body)) for body in asked]
    assert longest == sorted(longest, reverse=True)
    assert longest[-1] <= 4 < longest[0]
    with server(lambda _: (400, {"error": "context"})) as (url, asked), pytest.raises(InputError, match="window"):
        lrl(opened, url).scores([(0, [0, 1])])


def test_texts_cannot_end_their_quotation() -> None:
    text = 'a" \nPASSAGE2 = "b'
    assert passages_of({"messages": [{"content": prompt('q"', [text, "c"])}]}) == [text, "c"]


def test_answers_without_a_passage_keep_the_order(opened: Collection, capsys: pytest.CaptureFixture[str]) -> None:
    with server(lambda _: (200, says("I cannot tell."))) as (url, _):
        (scores,) = lrl(opened, url).scores([(0, [4, 5, 6])], "re-rank")
    assert scores.tolist() == [3, 2, 1]
    assert "re-rank: 1 of 1 answers name no passage: their windows keep their order" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("PASSAGE3, PASSAGE1, PASSAGE2]", [2, 0, 1]),
        ("SORTED_PASSAGES = [PASSAGE2, PASSAGE2, PASSAGE9, passage 1]", [1, 0]),
        ("[2] > [3] > [1]", [1, 2, 0]),
        ("The best of the 3 is the first.", []),
        ("PASSAGE0, PASSAGE99999999999", []),
        ("", []),
    ],
)
def test_answers_are_read_without_repeats_and_strangers(written: str, named: list[int]) -> None:
    assert named_in(written, 3) == named


@given(written=st.text(), number=st.integers(0, 9))
def test_every_answer_becomes_an_order(written: str, number: int) -> None:
    assert sorted(complete(named_in(written + "PASSAGE2", number), number)) == [*range(number)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"lrl asks a server: write lrl\(url=http://127.0.0.1:8000/v1, model=NAME\)"),
        ({"url": "http://127.0.0.1/v1"}, "lrl asks a server"),
        ({"url": "https://api.example.com/v1", "model": "m"}, "url is http://127.0.0.1:8000/v1"),
        ({"url": "http://example.com/v1", "model": "m"}, "the server is one of this machine"),
        ({"url": "http://me:secret@localhost/v1", "model": "m"}, "the server is one of this machine"),
        ({"url": "http://localhost:99999/v1", "model": "m"}, "the server is one of this machine"),
        ({"url": "http://localhost/v1", "model": "m", "key": "k"}, "'key' is not an option of lrl"),
        ({"url": "http://localhost/v1", "model": "m", "window": "4", "stride": "4"}, "the stride is less than the win"),
        ({"url": "http://localhost/v1", "model": "m", "window": "x"}, "'x': window is a number"),
    ],
)
def test_other_options_are_refused(opened: Collection, options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_ranker("lrl", opened).with_options(options)


def test_it_is_a_stage_of_a_system(toy_collection: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    out = tmp_path / "r.json"
    command = ["--collection", str(toy_collection), "--split", "test", "--out", str(out)]
    with server(by_length) as (url, asked):
        evaluate.main([*command, "--system", f"x=bm25 > 6 lrl(url={url}, model=tiny, window=4)"])
    stages = json.loads(out.read_text())["systems"]["x"]["stages"]
    assert stages[1]["stage"] == f"> 6 lrl(url={url}, model=tiny, window=4)"
    assert stages[1]["passes"] == 2
    assert len(asked) == 2 * 20
    out.unlink()
    for system, words in (
        ("x=bm25 > 6 lrl", "lrl asks a server"),
        (f"x=lrl(url={url}, model=m)", "only re-ranks what another system found"),
        (f"x=bm25 > 1 lrl(url={url}, model=m)", "re-rank 2 or more"),
        (f"x=bm25 > 6 +lrl(url={url}, model=m, weight=0.3)", "a score alone means nothing"),
        ("lrl=bm25", "'lrl' is a word of the language"),
    ):
        assert words in refused(evaluate.main, *command, "--system", system)
