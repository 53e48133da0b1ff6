import re
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.paragraphs import paragraphs
from tests.samples import DATA, needs

SENTENCE = "The quick brown fox jumps over the lazy dog, which sleeps on in the sun beside the old and quiet river"
STORY = [" ".join([SENTENCE] * (1 + n % 4)) + f" for {'a long ' * (n % 7)}while." for n in range(40)]


def test_paragraphs_end_at_blank_lines() -> None:
    text = "\n \n\n".join(textwrap.fill(paragraph, 70, initial_indent="  ") for paragraph in STORY)
    assert paragraphs("\n\n" + text + "\n") == STORY
    assert paragraphs(text.replace("\n", "\r\n")) == STORY
    assert paragraphs(text.replace("\n", "\r")) == STORY


def test_a_line_is_a_paragraph_where_lines_are_long() -> None:
    assert paragraphs("\n".join(STORY)) == STORY
    assert paragraphs("\n\n".join(STORY)) == STORY


def test_wrapped_text_without_blank_lines_is_split_where_the_next_word_had_room() -> None:
    story = [paragraph for paragraph in STORY if len(textwrap.wrap(paragraph, 70)[-1]) <= 60]
    assert 20 < len(story) < len(STORY)
    assert paragraphs("\n".join(textwrap.fill(paragraph, 70) for paragraph in story)) == story


def test_words_broken_at_a_hyphen_and_dashes_stay_together() -> None:
    assert paragraphs("the foot-\nmarks of the hound--\nor so he said -\nit was big") == [
        "the foot-marks of the hound--or so he said - it was big"
    ]


def test_a_line_is_a_paragraph_where_nearly_all_lines_are_sentences() -> None:
    """As in the input of BERT's own scripts: a sentence a line, even without capitals; blank lines between texts."""
    texts = [[f"the keeper wrote letter {i} {j} ." for j in range(6)] for i in range(4)]
    assert paragraphs("\n\n".join("\n".join(text) for text in texts)) == [line for text in texts for line in text]
    wrapped = ["The keeper wrote", "a letter. Nobody", "answered it."] * 10
    assert paragraphs("\n".join(wrapped)) != wrapped


def test_a_text_without_words_has_no_paragraphs() -> None:
    assert paragraphs("") == paragraphs("\n \r\n\t\n\ufeff") == []


@given(st.text(alphabet='ab.- \n\r\t"\u2028\u00e9\x00\ud800', max_size=400))
def test_no_word_is_lost(text: str) -> None:
    parts = paragraphs(text)
    assert all(paragraph and paragraph == " ".join(paragraph.split()) for paragraph in parts)
    letters = re.sub(r"[^ab.\-\"\u00e9]", "", text)
    assert "".join(parts).replace(" ", "") == letters


@needs("books")
@pytest.mark.parametrize(
    ("book", "recall", "precision"),
    [("Bennet_Babylon_1902", 0.9, 0.97), ("Lawrence_Peacock_1911", 0.92, 0.98), ("Haggard_She_1887", 0.92, 0.89)],
)
def test_real_books_without_their_blank_lines_get_their_paragraphs_back(
    book: str, recall: float, precision: float
) -> None:
    text = re.sub(" +", " ", (DATA / "books" / f"{book}.txt").read_text("utf-8-sig"))
    true = ends(paragraphs(text))
    guessed = ends(paragraphs("\n".join(line for line in text.split("\n") if line.strip())))
    assert len(true & guessed) >= recall * len(true)
    assert len(true & guessed) >= precision * len(guessed)


def ends(segments: list[str]) -> set[int]:
    """Return where each segment ends, as a number of letters from the beginning."""
    position, positions = 0, set()
    for segment in segments:
        position += len(segment.replace(" ", ""))
        positions.add(position)
    return positions
