"""MediaWiki's functions and magic words give what its manual says; sums equal those of a plain reference."""

import math
import random

import pytest

from deepsiam.data_prep.sources.wikipedia.arithmetic import evaluate
from deepsiam.data_prep.sources.wikipedia.formulas import formula_text
from deepsiam.data_prep.sources.wikipedia.functions import Facts, function_text

FACTS = Facts("Red fox", "2004-02-29T23:01:02Z")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("formatnum:3", "3"),
        ("formatnum:-10", "-10"),
        ("formatnum:1234567.8912", "1,234,567.8912"),
        ("formatnum:1,234.5|R", "1234.5"),
        ("formatnum:1234|NOSEP", "1234"),
        ("FORMATNUM:12345 m", "12,345 m"),
        ("lc:ABC", "abc"),
        ("uc:abc", "ABC"),
        ("ucfirst:red fox", "Red fox"),
        ("lcfirst:Red Fox", "red Fox"),
        ("plural:1|fox|foxes", "fox"),
        ("plural:2|fox|foxes", "foxes"),
        ("padleft:7|3|0", "007"),
        ("padright:ab|5|xy", "abxyx"),
        ("#if: |yes|no", "no"),
        ("#if:x|yes|no", "yes"),
        ("#if:|yes", ""),
        ("#ifeq:01|1.0|same|other", "same"),
        ("#ifeq:a|A|same|other", "other"),
        ("#ifexpr:1 > 2|yes|no", "no"),
        ("#switch:b|a=1|b|c=2|#default=3", "2"),
        ("#switch:z|a=1|#default=3|b=2", "3"),
        ("#switch:z|a=1|3", "3"),
        ("#switch:1.0|1=one", "one"),
        ("#expr:(1+2)*3^2/4", "6.75"),
        ("#expr:2*3 round 0", "6"),
        ("#expr:1/3 round 3", "0.333"),
        ("#language:de", "German"),
        ("DEFAULTSORT:Fox, Red", ""),
        ("#tag:ref|a note", ""),
        ("PAGENAME", "Red fox"),
        ("CURRENTYEAR", "2004"),
        ("CURRENTMONTHNAME", "February"),
        ("REVISIONDAY", "29"),
        ("SITENAME", "Wikipedia"),
        ("!", "|"),
        ("=", "="),
    ],
)
def test_functions_are_those_of_the_manual(content: str, text: str) -> None:
    assert function_text(content, FACTS) == (text,)


@pytest.mark.parametrize(
    "content",
    [
        "#invoke:Fox|run",
        "#expr:1/0",
        "#expr:2^9999",
        "#ifexpr:(|a|b",
        "plural:many|a|b",
        "PAGENAME:Other",
        "#if:\x020\x03|a",
    ],
)
def test_the_result_of_a_function_may_be_unknown(content: str) -> None:
    assert function_text(content, FACTS) == (None,)


@pytest.mark.parametrize("content", ["convert|5|km", "cite web|url=http://a", "lang:x", "pagename", "fox"])
def test_other_templates_are_no_functions(content: str) -> None:
    assert function_text(content, FACTS) is None


def test_sums_equal_those_of_a_plain_reference() -> None:
    rng = random.Random(7)
    for _ in range(300):
        text, value = _sum(rng, 4)
        result = evaluate(text)
        if value is None or not math.isfinite(value):
            assert result is None
        else:
            assert result is not None
            assert float(result) == pytest.approx(value, rel=1e-12, abs=1e-12)


def _sum(rng: random.Random, depth: int) -> tuple[str, float | None]:
    """A random sum in brackets, with its value; None if it has none."""
    if not depth or rng.random() < 0.2:
        number = rng.randrange(1, 20)
        return str(number), float(number)
    (left, one), (right, two) = _sum(rng, depth - 1), _sum(rng, depth - 1)
    sign = rng.choice("+-*/")
    text = f"({left}){sign} ({right})"
    if one is None or two is None or (sign == "/" and two == 0):
        return text, None
    return text, {"+": one + two, "-": one - two, "*": one * two, "/": one / two if two else 0.0}[sign]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 + 2 * 3", "7"),
        ("8 - 3 - 2", "3"),
        ("-2 ^ 2", "4"),
        ("2 ^ -1", "0.5"),
        ("7 mod 3", "1"),
        ("1 = 1 and 2 <> 2", "0"),
        ("not 0", "1"),
        ("trunc 2.7 + ceil 2.1 - abs(-1)", "4"),
        ("", ""),
        ("1e3", "1000"),
        ("1 +", None),
        ("1 2", None),
        ("(1", None),
        ("1)", None),
        ("__import__", None),
        ("10^400", None),
        ("-8 ^ 0.5", None),
        ("9" * 5000, None),
    ],
)
def test_operators_bind_as_in_the_manual(text: str, result: str | None) -> None:
    assert evaluate(text) == result


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
