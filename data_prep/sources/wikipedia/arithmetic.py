"""The sums of {{#expr:}}: read from left to right with two stacks, in linear time; no code is run."""

import math
import operator
import re
from collections.abc import Callable

LONGEST = 2000  # characters of a sum

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)|([a-z]+)|(<>|!=|<=|>=|[-+*/^=<>()−×÷]))", re.IGNORECASE)
_NAMES = {"e": math.e, "pi": math.pi}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "exp", "sqrt")},
    "ln": math.log,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "not": lambda value: not value,
    "minus": operator.neg,  # the sign
    "plus": operator.pos,
}


def _rounded(value: float, places: float) -> float:
    scale = 10.0 ** max(min(int(places), 30), -30)
    return math.copysign(math.floor(abs(value) * scale + 0.5) / scale, value)


_BINARY: dict[str, tuple[int, Callable[[float, float], float]]] = {  # how closely it binds, and what it does
    "^": (8, lambda one, two: float(one) ** two),
    "*": (7, operator.mul),
    "/": (7, operator.truediv),
    "div": (7, operator.truediv),
    "mod": (7, lambda one, two: math.fmod(int(one), int(two))),
    "fmod": (7, math.fmod),
    "+": (6, operator.add),
    "-": (6, operator.sub),
    "round": (5, _rounded),
    "=": (4, operator.eq),
    "<>": (4, operator.ne),
    "!=": (4, operator.ne),
    "<": (4, operator.lt),
    ">": (4, operator.gt),
    "<=": (4, operator.le),
    ">=": (4, operator.ge),
    "and": (3, lambda one, two: bool(one and two)),
    "or": (2, lambda one, two: bool(one or two)),
}
_SAME = {"−": "-", "×": "*", "÷": "/"}


def evaluate(text: str) -> str | None:
    """Return the result of a sum as MediaWiki writes it; "" for no sum, None for one that is wrong or too large."""
    if not text.strip():
        return ""
    try:
        value = _value(text) if len(text) <= LONGEST else None
    except (ValueError, ArithmeticError, IndexError, TypeError):
        return None
    if value is None or not math.isfinite(value):
        return None
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return f"{value:.14g}".replace("e+", "E+").replace("e-", "E-")


def _value(text: str) -> float | None:
    values: list[float] = []
    waiting: list[str] = []  # operators, functions and open brackets
    operand = True  # whether a number, function or sign comes next
    at = 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            return None
        at = token.end()
        number, name, sign = token[1], (token[2] or "").lower(), _SAME.get(token[3], token[3])
        word = name or sign
        if operand and (number or name in _NAMES):
            values.append(float(number) if number else _NAMES[name])
            operand = False
        elif operand and (name in _FUNCTIONS or word in ("-", "+")):
            waiting.append({"-": "minus", "+": "plus"}.get(word, word))
        elif operand and word == "(":
            waiting.append(word)
        elif not operand and word in _BINARY:
            _apply(values, waiting, _BINARY[word][0])
            waiting.append(word)
            operand = True
        elif not operand and word == ")":
            _apply(values, waiting, 0)
            if waiting.pop() != "(":
                return None
        else:
            return None
    _apply(values, waiting, 0)
    return float(values[0]) if len(values) == 1 and not waiting and not operand else None


def _apply(values: list[float], waiting: list[str], least: int) -> None:
    """Apply the operators that wait, back to an open bracket, if they bind at least so closely."""
    while waiting and waiting[-1] != "(":
        word = waiting[-1]
        if word in _FUNCTIONS:
            values.append(float(_FUNCTIONS[waiting.pop()](values.pop())))
            continue
        closeness, function = _BINARY[word]
        if closeness < least:
            return
        waiting.pop()
        right = values.pop()
        values.append(float(function(values.pop(), right)))
