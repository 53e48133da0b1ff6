import pytest

from deepsiam.data_prep.text.language import is_english, is_prose


@pytest.mark.parametrize(
    "text",
    [
        "Returns the number of foxes.",
        "Adjust image contrast.",
        "If `x` is None, the FFT of the signal is computed with scipy.fft (see below).",
        "Don't use this; it's slow, e.g. for files/folders larger than 2 GB.",
    ],
)
def test_sentences_are_prose(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int",
        "Parameters",
        "x = foo(bar, baz=1) + qux[0]",
        "for i in range(10): print(i, end='') # the end of it",
        "a, b = np.array([[1, 2], [3, 4]])",
        "1.0 2.0 3.0 the 4.0",
        "linalg norm solve",
    ],
)
def test_code_numbers_and_names_are_not_prose(text: str) -> None:
    assert not is_prose(text)


def test_other_languages_are_not_english() -> None:
    assert is_english("Computes the mean of all values in the array.")
    assert not is_english("Berechnet den Mittelwert aller Werte und gibt ihn als Zahl zurück.")
    assert not is_english("Calcule la moyenne de toutes les valeurs du tableau donné.")
    assert not is_english("计算数组中所有值的平均值。")
    assert not is_english("123 + 456")
