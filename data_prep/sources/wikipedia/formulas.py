"""Formulas in LaTeX, <math>, that plain text can show: `E=mc^2`, `\\alpha \\le 10^{-6}`."""

import re
import unicodedata

from deepsiam.data_prep.text.language import word_set

MAX_CHARACTERS = 200  # characters

# commands that are written without the backslash, those that show nothing or a blank, and those of symbols
_WORDS = word_set("sin cos tan log ln exp min max lim det dim ker deg") | frozenset("{}%$#&_")
_NOTHING = word_set("left right big Big ! limits displaystyle textstyle")
_WITH_PARTS = word_set("frac dfrac tfrac sqrt")
_BLANKS = frozenset((",", ";", ":", " ", "quad", "qquad"))


def _pairs(table: str) -> dict[str, str]:
    return dict(pair.split() for pair in table.split(","))


_SYMBOLS = _pairs(
    """
    cdot ·, times ×, div ÷, pm ±, mp ∓, ast ∗, circ °, prime ′, le ≤, leq ≤, ge ≥, geq ≥, ne ≠, neq ≠, approx ≈, sim ∼,
    equiv ≡, ll ≪, gg ≫, propto ∝, infty ∞, partial ∂, nabla ∇, ell ℓ, hbar ħ, in ∈, notin ∉, subset ⊂, subseteq ⊆,
    cup ∪, cap ∩, setminus ∖, emptyset ∅, forall ∀, exists ∃, neg ¬, land ∧, wedge ∧, lor ∨, vee ∨, mid |, to →,
    rightarrow →, leftarrow ←, Rightarrow ⇒, implies ⇒, iff ⇔, mapsto ↦, ldots …, dots …, cdots ⋯, langle ⟨, rangle ⟩,
    varepsilon ε, vartheta ϑ, varphi φ
    """
)
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])\s*")
_STYLE = re.compile(r"\\(?:mathrm|mathbf|mathit|mathsf|text|textrm|operatorname|rm|bf|boldsymbol)\s*\{([^{}\\]*)\}")
_SCRIPT = re.compile(r"([_^])\{([^{}_^]+)\}")  # after which no brackets are needed, if it is one word
_ATOM = re.compile(r"[-+−]?\w+|[∗′°]")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}\\]+)\}\s*\{([^{}\\]+)\}")
_ROOT = re.compile(r"\\sqrt\{([^{}\\]+)\}")
_MARKUP = re.compile(r"[{}\\]")


def formula_text(latex: str) -> str | None:
    """Return a formula as plain text, or None if it needs more than symbols, indices and exponents."""
    if len(latex) > MAX_CHARACTERS:
        return None
    text = _STYLE.sub(r"\1", latex)
    text = _COMMAND.sub(_sign, text)
    text = _SCRIPT.sub(lambda match: match[1] + _bracketed(match[2]), text)
    text = _ROOT.sub(lambda match: "√" + _bracketed(match[1]), text)
    text = _FRACTION.sub(lambda match: f"{_bracketed(match[1])}/{_bracketed(match[2])}", text)
    return None if _MARKUP.search(text) else " ".join(text.split())


def _bracketed(part: str) -> str:
    return part if _ATOM.fullmatch(part.strip()) else f"({part.strip()})"


def _sign(command: re.Match[str]) -> str:
    name = command[1]
    if name in _WITH_PARTS:
        return f"\\{name}"
    if name in _NOTHING:
        return ""
    if name in _BLANKS:
        return " "
    if name in _WORDS:
        sign = name
    elif name in _SYMBOLS:
        sign = _SYMBOLS[name]
    else:
        size = "CAPITAL" if name[0].isupper() else "SMALL"
        try:
            sign = unicodedata.lookup(f"GREEK {size} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}")
        except KeyError:
            return "\\"
    return sign + (" " if command[0][-1].isspace() else "")
