import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.text.language_id import ANY, SAMPLE, THRESHOLD, known, odds_against, sampled

# the first article of the Universal Declaration of Human Rights
ARTICLE = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "ca": "Tots els éssers humans neixen lliures i iguals en dignitat i en drets.",
    "ro": "Toate fiinţele umane se nasc libere şi egale în demnitate şi în drepturi.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "cy": "Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
}


@pytest.mark.parametrize("language", ARTICLE)
def test_a_sentence_is_in_its_language_and_in_no_other(language: str) -> None:
    against = {other: odds_against(ARTICLE[language], other) for other in ARTICLE}
    assert against.pop(language) < 0
    assert min(against.values()) > THRESHOLD
    assert odds_against(ARTICLE[language], ANY) < 0


@pytest.mark.parametrize(
    "headline",
    ["Rain on the way for Riverina", "Qld cane growers upbeat", "lol ok", "yes i am", "Thanks mate", "12345 6789", ""],
)
def test_a_few_words_may_be_of_any_language(headline: str) -> None:
    assert odds_against(headline, "en") < THRESHOLD


@given(st.text(max_size=20) | st.integers(0, 5 * SAMPLE).map(lambda length: "".join(map(chr, range(64, 64 + length)))))
def test_a_sample_is_of_the_whole_length(text: str) -> None:
    sample = sampled(text)
    assert len(sample) <= SAMPLE + language_id.WINDOWS - 1
    if len(text) <= SAMPLE:
        assert sample == text
    else:
        pieces = [sample[start : start + 1000] for start in range(0, len(sample), 1001)]
        starts = [text.index(piece) for piece in pieces]
        assert [start - starts[0] for start in starts] == [number * starts[1] for number in range(4)]
        assert starts[0] == 0
        assert len(text) - (starts[-1] + 1000) < 3


def test_a_language_is_known_by_its_code() -> None:
    assert (known("EN"), known("any")) == ("en", ANY)
    with pytest.raises(InputError, match="--language english: not known; one of any, .*, en, .*"):
        known("english")
