import time

from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.sentences import sentences


def test_sentences_are_split_but_not_after_abbreviations() -> None:
    text = "Reads a file, e.g. Foo. It may be large, cf. Bar et al. for more. Is it? Yes!"
    assert sentences(text)[0] == "Reads a file, e.g. Foo."
    assert sentences(text)[-2:] == ["Is it?", "Yes!"]
    assert " ".join(sentences(text)) == text
    assert sentences("See Fig. 3 for it. Done.") == ["See Fig. 3 for it.", "Done."]
    assert sentences("") == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")))
def test_splitting_loses_nothing_but_blanks(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_splitting_takes_linear_time() -> None:
    text = " ".join(["See e.g. A"] * 40_000)
    started = time.process_time()
    assert sentences(text) == [text]
    assert time.process_time() - started < 5  # appending each piece to a string takes a minute
