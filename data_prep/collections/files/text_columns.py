"""Find which columns of a table of pairs or triples are the query, the document, its negatives and the label.

Those given by --columns are taken. Else names decide, not the order: sentence-transformers takes columns in their
order, so a table with sorted columns (anchor, negative, positive) would train on the negatives as positives. Columns
with other names are taken in their order. Text without a header is refused, since its first line would be lost.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from deepsiam.data_prep.collections.files.table import CSV, TSV, table_columns, table_kind
from deepsiam.data_prep.collections.format import Where
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.pairs import LABELS

QUERY, DOCUMENT, NEGATIVE = "query", "document", "negative"
NAMES = {  # in lower case
    QUERY: "query|question|anchor|premise|(sentence|text|question)_?[1a]",
    DOCUMENT: "document|positive|pos|passage|answer|hypothesis|(sentence|text|question)_?[2b]",
    NEGATIVE: r"(hard_)?neg(ative)?(_?\d+)?",
}
LABEL = "label"  # the role of a column named as in LABELS
IGNORED = {"", "id", "idx", "index", "__index_level_0__"}

GivenColumns = Sequence[tuple[str, str]]  # a role, which may be repeated, and the name of its column


class TextColumns(NamedTuple):
    """The names of columns."""

    texts: Sequence[str]  # query, document, negatives
    label: str | None
    by_name: bool  # whether the columns were found by name, not by order
    are_given: bool = False  # other columns do not count, whatever their names

    def check_keys(self, keys: Iterable[str], where: Where) -> None:
        """Raise InputError if a row has a label or a negative that is no column: the first object lacked its key."""
        for key in () if self.are_given else keys:
            if key not in (*self.texts, self.label) and (key.lower() in LABELS or _role(key) == NEGATIVE):
                lacks = "which the file's first object has not: write it in every object, or in none"
                raise InputError(f"{where}: has {key!r:.40}, {lacks}")


def parse_columns(text: str) -> GivenColumns:
    """Read `query=anchor,document=positive`; raise InputError where it is not such a list."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(role in (*NAMES, LABEL) and name for role, _, name in pairs):
        roles = ", ".join((*NAMES, LABEL))
        raise InputError(f"--columns {text}: write ROLE=NAME,ROLE=NAME with roles of {roles}")
    return [(role, name) for role, _, name in pairs]


def given_columns(path: Path, given: GivenColumns, *, negatives: bool, needs_label: bool = False) -> TextColumns:
    """Return the given columns of a table; raise InputError if it lacks one, or a role has too many or none."""
    names, by_role = table_columns(path), {role: [n for r, n in given if r == role] for role in (*NAMES, LABEL)}
    if absent := [name for _, name in given if name not in names]:
        raise InputError(f"{path}: has no column {absent[0]!r}; its columns are {', '.join(names)[:400] or 'none'}")
    numbers = [len(by_role[role]) for role in (QUERY, DOCUMENT, LABEL)]
    if numbers[:2] != [1, 1] or not needs_label <= numbers[2] <= 1 or bool(by_role[NEGATIVE]) != negatives:
        also = ("; negative, once or more" if negatives else "") + (f"; {LABEL}" if needs_label else "")
        raise InputError(f"--columns: name {QUERY} and {DOCUMENT}, each once{also}, and nothing else but a {LABEL}")
    texts = [*by_role[QUERY], *by_role[DOCUMENT], *by_role[NEGATIVE]]
    return TextColumns(texts, next(iter(by_role[LABEL]), None), by_name=True, are_given=True)


def text_columns(path: Path, given: GivenColumns, *, negatives: bool) -> TextColumns:
    """Return the columns given, or find a table's; raise InputError if they are not those of pairs or triples."""
    if given:
        return given_columns(path, given, negatives=negatives)
    names = table_columns(path)
    labels = [name for name in names if name.lower() in LABELS]
    texts = [name for name in names if name.lower() not in LABELS | IGNORED]
    full_order = [QUERY, DOCUMENT, *[NEGATIVE] * (max(len(texts) - 2, 1) if negatives else 0)]
    roles = [_role(name) for name in texts]
    by_name = sorted(map(str, roles)) == sorted(full_order)
    has_names = any(roles) or table_kind(path) not in (TSV, CSV)
    in_order = (
        has_names
        and len(roles) == len(full_order)
        and all(role in (None, name) for role, name in zip(roles, full_order, strict=True))
    )
    if (by_name or in_order) and len(labels) <= 1:
        if by_name:
            texts.sort(key=lambda name: full_order.index(str(_role(name))))
        return TextColumns(texts, next(iter(labels), None), by_name)
    advice = f"{', '.join(full_order[:3])}{', more negatives' * negatives}, and score or label where there is one"
    columns = ", ".join(f"{name:.40}" for name in names) or "none"
    hint = "; such tables are of the format triples" if NEGATIVE in roles and not negatives else ""
    raise InputError(f"{path}: its columns are {columns}; name them {advice}{hint}")


def _role(name: str) -> str | None:
    return next((role for role, pattern in NAMES.items() if re.fullmatch(pattern, name.lower())), None)
