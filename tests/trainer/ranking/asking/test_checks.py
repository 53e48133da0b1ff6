"""How a query is read from what a model wrote, and why it is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.ranking.asking.checks import REASONS, line_of, query_of, reason_against, shared, words_of

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


def test_a_query_without_an_end_is_overlong() -> None:
    assert reason_against("what did they", DOCUMENT, False, set()) == "overlong"


def test_the_whole_of_a_short_document_is_a_copy() -> None:
    assert reason_against("The ship!", "the ship", True, set()) == "copied"


def test_the_share_of_n_grams() -> None:
    assert shared(words_of("a b c d x"), words_of("a b c d e")) == 1 / 2
    assert shared(words_of("a b c"), words_of("a b c")) == 0
