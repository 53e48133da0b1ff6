"""Prompts: what a chat and a text are, and which files are refused."""

from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.asking.prompts import KINDS, open_prompts

EXAMPLES = '{"document": "D1", "query": "q1"}\n{"document": "D2", "query": "q2", "kind": "title"}\n'


def write(path: Path, content: str) -> Path:
    path.write_text(content)
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
        ("p.txt", "Ask about {text}", r"p.txt: its last message, and no other, must have \{document\}: write it where"),
        ("p.json", "[]", "its last message"),
        ("p.json", '[{"role": "user", "content": "{document}"}, {"role": "user", "content": ""}]', "its last message"),
        ("p.json", '[{"role": "boss", "content": "{document}"}]', r"p.json: 0.role: .*write \[\{"),
        ("e.jsonl", "", r"e.jsonl: has no example: write \{"),
        ("e.jsonl", '{"document": "D", "query": "q"}\n{"document": "D"}\n', r"e.jsonl:2: query: field required"),
        ("e.jsonl", '{"document": "D", "query": " "}\n', r"e.jsonl:1: an example has an empty document or query"),
        (
            "e.jsonl",
            '{"document": "D", "query": "q", "kind": "claim"}\n',
            "e.jsonl:1: its kind 'claim' is none of: que",
        ),
    ],
)
def test_files_that_are_refused(name: str, content: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=words):
        open_prompts(["question"], *((None, path) if name == "e.jsonl" else (path, None)))


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xff{document}")
    with pytest.raises(InputError, match=r"p.txt: not UTF-8 \(invalid start byte at byte 0\)"):
        open_prompts(["question"], tmp_path / "p.txt", None)
