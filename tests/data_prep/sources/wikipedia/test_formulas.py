"""Formulas that plain text can show are shown; what needs more is unknown."""

import pytest

from deepsiam.data_prep.sources.wikipedia.formulas import formula_text


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        ("E=mc^2", "E=mc^2"),
        (r"\alpha \le 10^{-6}", "α ≤ 10^-6"),
        (r"x_{n+1} \in \Omega", "x_(n+1) ∈ Ω"),
        (r"\frac{1}{2}\sqrt{a+b}", "1/2√(a+b)"),
        (r"\mathrm{SS}_\text{Total}", "SS_Total"),
        (r"\int_0^1 x\,dx", None),
        (r"\frac{\frac{a}{b}}{c}", None),
        ("x" * 1000, None),
    ],
)
def test_plain_formulas_are_shown(latex: str, text: str | None) -> None:
    assert formula_text(latex) == text
