import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.sentences import sentences


def test_sentences_are_split_but_not_after_abbreviations() -> None:
    text = "Reads a file, e.g. Foo. It may be large, cf. Bar et al. for more. Is it? Yes!"
    assert sentences(text)[0] == "Reads a file, e.g. Foo."
    assert sentences(text)[-2:] == ["Is it?", "Yes!"]
    assert " ".join(sentences(text)) == text
    assert sentences("See Fig. 3 for it. Done.") == ["See Fig. 3 for it.", "Done."]
    assert sentences("") == []


@pytest.mark.parametrize(
    "expected",
    [
        ["Mrs. Bennet was called.", "Mr. Bingley had come to St. Ives with Capt. Wade."],  # titles before names
        ["He looked at him.", "Mr. Bumble was silent.", "So was Dr. John."],
        ["The Rev. Dr. E. Smith won the case Hudson v. Palmer."],
        ['"Get out!" he thundered.', '"Why?" asked Eustace.', '"I stay."'],  # speech continues in lower case
        ["“Will you?” she asked.", "‘No!’ cried James."],
        ["It peaked at No. 63, see pp. 5 to 7 and Fig. 3."],  # numbers
        ["He said no.", "Therefore it is art.", "That is all."],
        ["Nine were killed.", "400 fled in 2007.", "11,400 of them came back.", "5 of 11 tracks are in English."],
        ["As Zhang et al. (2015) and Ruhlen, M. 1991. say, it is old."],
        ["G. Hermida was born there.", "It is “so.”", "Mrs. Hale left."],
        ["There are shells, etc.", "A capital is also used, e.g. here."],
    ],
)
def test_boundaries(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")))
def test_splitting_loses_nothing_but_blanks(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_splitting_takes_linear_time() -> None:
    text = " ".join(["See e.g. A"] * 40_000)
    started = time.process_time()
    assert sentences(text) == [text]
    assert time.process_time() - started < 5  # appending each piece to a string takes a minute
