"""Prompts, and which files of them are refused; how a query is read from what a model wrote, and why it is left out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.asking.checks import REASONS, line_of, query_of, reason_against, shared, words_of
from deepsiam.trainer.ranking.asking.prompts import KINDS, open_prompts

EXAMPLES = '{"document": "D1", "query": "q1"}\n{"document": "D2", "query": "q2", "kind": "title"}\n'


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode("latin-1"))
    return path


def test_examples_come_before_the_document(tmp_path: Path) -> None:
    question, title = open_prompts(["question", "title"], None, write(tmp_path / "e.jsonl", EXAMPLES))
    assert question.chat("D") == [
        {"role": "user", "content": KINDS["question"].replace("{document}", "D1")},
        {"role": "assistant", "content": "q1"},
        {"role": "user", "content": KINDS["question"].replace("{document}", "D")},
    ]
    assert question.plain("D") == "".join(
        [KINDS["question"].replace("{document}", "D1"), " q1\n\n\n", KINDS["question"].replace("{document}", "D")]
    )
    assert [message["content"] for message in title.chat("D") if message["role"] == "assistant"] == ["q1", "q2"]


def test_ones_own_prompt(tmp_path: Path) -> None:
    (prompt,) = open_prompts([], write(tmp_path / "p.txt", 'As JSON, {"q": ...}, of {document}: \n'), None)
    assert prompt.chat("{document}") == [{"role": "user", "content": 'As JSON, {"q": ...}, of {document}: '}]
    assert not prompt.needs_chat
    messages = '[{"role": "system", "content": "Be short."}, {"role": "user", "content": "{document}!"}]'
    (prompt,) = open_prompts([], write(tmp_path / "p.json", messages), None)
    assert [message["content"] for message in prompt.chat("D")] == ["Be short.", "D!"]
    assert prompt.needs_chat


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.txt", "\xff{document}", r"p.txt: not UTF-8 \(invalid start byte at byte 0\)"),
        ("p.txt", "Ask about {text}", r"p.txt: its last message, and no other, must have \{document\}: write it where"),
        ("p.json", "[]", "its last message"),
        ("p.json", '[{"role": "user", "content": "{document}"}, {"role": "user", "content": ""}]', "its last message"),
        ("p.json", '[{"role": "boss", "content": "{document}"}]', r"p.json: 0.role: .*write \[\{"),
        ("e.jsonl", "", r"e.jsonl: has no example: write \{"),
        ("e.jsonl", '{"document": "D", "query": "q"}\n{"document": "D"}\n', r"e.jsonl:2: query: field required"),
        ("e.jsonl", '{"document": "D", "query": " "}\n', r"e.jsonl:1: an example has an empty document or query"),
        ("e.jsonl", '{"document": "D", "query": "q", "kind": "claim"}\n', "e.jsonl:1: its kind 'claim' is none of: q"),
    ],
)
def test_files_that_are_refused(name: str, content: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=words):
        open_prompts(["question"], *((None, path) if name == "e.jsonl" else (path, None)))


DOCUMENT = "The ship sailed a long way around the cape, and its old crew baked bread every day of the year."


@pytest.mark.parametrize(
    ("written", "query", "has_ended"),
    [
        (" What did they bake?", "What did they bake?", False),
        ("\n\nWhat did they bake?\nAnswer: bread", "What did they bake?", True),
        ("Here is a question:\n\n1. **Question:** What?\n", "What?", True),
        ("Question: “what  did\tthey bake”", "what did they bake", False),
        ("<think>\nThe text says so.\n</think>\nwho sailed", "who sailed", False),
        ("<think>\nI am still", "", False),
        ("...\n- 3) ship crew\n", "ship crew", True),
        ("1998 world cup winner", "1998 world cup winner", False),
        ("half a \ud800 character", "half a ? character", False),
        ("bell \x07 rings", "bell rings", False),
        ("", "", False),
    ],
)
def test_the_first_line_with_words_is_the_query(written: str, query: str, has_ended: bool) -> None:
    line, ended = line_of(written)
    assert (query_of(line), ended) == (query, has_ended)


@given(written=st.text())
def test_every_text_is_read_and_judged(written: str) -> None:
    query = query_of(line_of(written)[0])
    query.encode()
    assert "\n" not in query
    assert reason_against(query, written, True, set()) in (*REASONS, None)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("what did the crew bake", None),
        ("the old crew", None),  # a name is no copy
        ("?!", "empty"),
        ("I'm sorry, but I cannot answer", "refused"),
        ("As an AI language model, I have no ship", "refused"),
        ("I can’t help with that.", "refused"),
        ("Sorry sight: who says so in Macbeth?", "refused"),  # rather one too many
        ("its OLD crew baked bread, every day", "copied"),
        ("why its old crew baked bread every day on the ship", None),  # 5 of 8
        ("an example's query", "copied"),
        (DOCUMENT, "copied"),
    ],
)
def test_what_is_left_out(query: str, reason: str | None) -> None:
    assert reason_against(query, DOCUMENT, True, {words_of("An example's QUERY")}) == reason
    assert reason_against("what did they", DOCUMENT, False, set()) == "overlong"  # without an end
    assert reason_against("The ship!", "the ship", True, set()) == "copied"  # the whole of a short document


def test_the_share_of_n_grams() -> None:
    assert shared(words_of("a b c d x"), words_of("a b c d e")) == 1 / 2
    assert shared(words_of("a b c"), words_of("a b c")) == 0
